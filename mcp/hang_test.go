// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestHang: a server that answers nothing is started again, and until then a call of
// it takes no longer than calls may.
func TestHang(t *testing.T) {
	for _, version := range []string{"", lastWithSessions} {
		t.Run("protocol "+version, func(t *testing.T) {
			never := make(chan struct{})
			t.Cleanup(func() { close(never) })
			b := newBench(t, sdkServer(func(s *sdk.Server) {
				addTool(s, "hang", "Hang.", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					<-never // whatever it is told
					return nil, context.Canceled
				})
				addTool(s, "live", "Live.", says("alive"))
			}))
			b.version = version
			b.serve(`{name: s, command: [server], tools: ["*"], calls: {timeout: 20ms}}`)
			hang := func() {
				if text, res := b.call("hang", `{}`); !res.IsError || !strings.Contains(text, "longer than 20ms") && !strings.Contains(text, "does not run") {
					t.Errorf("%q", text)
				}
			}
			for range maxSilent {
				hang()
			}
			b.until("it is started again", func() bool { return b.level.starts() >= 2 })
			b.until("it answers again", func() bool { text, _ := b.call("live", `{}`); return text == "alive" })
			if !b.noticed("it answered none of 3 calls in their time") {
				t.Errorf("%q", b.notices)
			}
		})
	}
}

// TestAnswersInBetween: only calls in a row count, of the server that runs now, and it is
// ended once.
func TestAnswersInBetween(t *testing.T) {
	now, before := &sdk.ClientSession{}, &sdk.ClientSession{}
	u := &upstream{session: now, hung: make(chan struct{})}
	ended := func() bool {
		select {
		case <-u.hung:
			return true
		default:
			return false
		}
	}
	for range 2 {
		for range maxSilent - 1 {
			u.noteAnswer(now, false)
		}
		u.noteAnswer(now, true)
	}
	for range maxSilent {
		u.noteAnswer(before, false)
	}
	if ended() {
		t.Fatal("it has answered in between")
	}
	for range maxSilent {
		u.noteAnswer(now, false)
	}
	if !ended() {
		t.Error("it answers nothing")
	}
	u.noteAnswer(now, true)
	for range maxSilent {
		u.noteAnswer(now, false)
	}
}

// watching is a server that keeps the resources that it was asked to tell of.
type watching struct {
	mu   sync.Mutex
	uris []string
}

func (w *watching) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(w.uris))
}

func (w *watching) serve(ctx context.Context, in io.Reader, out, _ io.Writer) int {
	s := sdk.NewServer(&sdk.Implementation{Name: "theirs", Version: "1"}, &sdk.ServerOptions{
		SubscribeHandler: func(_ context.Context, req *sdk.SubscribeRequest) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.uris = append(w.uris, req.Params.URI)
			return nil
		},
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil }})
	library(nil)(s)
	addTool(s, "live", "Live.", says("alive"))
	addTool(s, "die", "Die.", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		go in.(io.Closer).Close()
		return &sdk.CallToolResult{}, nil
	})
	if err := s.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}}); err != nil && ctx.Err() == nil {
		return 1
	}
	return 0
}

// TestSubscribedAgain: what a client subscribed to, and did not give up, the server is
// asked for again when it was started again, and the client is told to look.
func TestSubscribedAgain(t *testing.T) {
	for _, version := range []string{"", lastWithSessions} {
		t.Run("protocol "+version, func(t *testing.T) {
			w := &watching{}
			b := newBench(t, func(ctx context.Context, in io.Reader, out, errs io.Writer) int {
				pr, pw := io.Pipe()
				go func() { io.Copy(pw, in); pw.Close() }()
				return w.serve(ctx, pr, out, errs)
			})
			told := make(chan string, 100)
			b.options.ResourceUpdatedHandler = func(_ context.Context, req *sdk.ResourceUpdatedNotificationRequest) { told <- req.Params.URI }
			b.version = version
			b.serve(`{name: s, command: [server], tools: ["*"], resources: ["file:///notes/*"]}`)
			for i := range 3 {
				if err := b.client.Subscribe(t.Context(), &sdk.SubscribeParams{URI: fmt.Sprint("file:///notes/", i)}); err != nil {
					t.Fatal(err)
				}
			}
			b.until("it is asked", func() bool { return len(w.asked()) == 3 })
			if err := b.client.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: "file:///notes/1"}); err != nil {
				t.Fatal(err)
			}
			b.until("it is given up", func() bool { return len(b.gateway.subscribed.all()) == 2 })
			b.call("die", `{}`)
			b.until("it is asked again", func() bool { return len(w.asked()) == 5 })
			if got, want := w.asked(), []string{"file:///notes/0", "file:///notes/0", "file:///notes/1", "file:///notes/2", "file:///notes/2"}; !slices.Equal(got, want) {
				t.Error(got)
			}
			if got := slices.Sorted(slices.Values([]string{<-told, <-told})); !slices.Equal(got, []string{"file:///notes/0", "file:///notes/2"}) {
				t.Error(got)
			}
		})
	}
}

// TestSubscribingHangs: a server that does not answer holds a subscription up no longer
// than a call.
func TestSubscribingHangs(t *testing.T) {
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	b := newBench(t, func(ctx context.Context, in io.Reader, out, _ io.Writer) int {
		s := sdk.NewServer(&sdk.Implementation{Name: "theirs", Version: "1"}, &sdk.ServerOptions{
			SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { <-never; return nil },
			UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil }})
		library(nil)(s)
		_ = s.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}})
		return 0
	})
	b.version = lastWithSessions
	b.serve(`{name: s, command: [server], resources: ["file:///notes/*"], calls: {timeout: 20ms}}`)
	if err := b.client.Subscribe(t.Context(), &sdk.SubscribeParams{URI: "file:///notes/1"}); err == nil {
		t.Error("nobody answered")
	}
	if left := b.gateway.subscribed.all(); len(left) != 0 {
		t.Error(left)
	}
}

// A server that reads nothing any more is ended, and holds up neither who calls it nor,
// until then, the end of the gateway: the library would wait until it has read.
func TestDeafServer(t *testing.T) {
	b := newBench(t, nil)
	deaf := make(chan struct{})
	b.level.prog = func(ctx context.Context, in io.Reader, out, errs io.Writer) int {
		r, w := io.Pipe()
		defer w.Close()
		go func() {
			defer r.Close()
			hostile(lastWithSessions, nil)(ctx, r, out, errs)
		}()
		for lines := bufio.NewScanner(in); lines.Scan(); {
			fmt.Fprintln(w, lines.Text())
			if strings.Contains(lines.Text(), `"tools/list"`) {
				break
			}
		}
		close(deaf)
		<-ctx.Done()
		return 0
	}
	b.version, b.unread = lastWithSessions, time.Hour
	stop := b.serve()
	b.tools()
	<-deaf
	ctx, leave := context.WithCancel(t.Context())
	called := make(chan struct{})
	go func() {
		defer close(called)
		b.client.CallTool(ctx, &sdk.CallToolParams{Name: "a", Arguments: rawJSON("{}")})
	}()
	b.until("it is called", func() bool { return len(b.gateway.upstreams[0].slots) == 1 })
	leave()
	<-called
	stop()

	out, in := io.Pipe()
	h := &heard{PipeWriter: in, timeout: time.Millisecond, deaf: func() { out.CloseWithError(errDeaf) }}
	if n, err := h.Write([]byte("x")); n != 0 || !errors.Is(err, errDeaf) {
		t.Errorf("%d, %v", n, err)
	}
	// Its own pipe: the first one's may still be closing.
	listening, told := io.Pipe()
	attentive := &heard{PipeWriter: told, timeout: time.Hour, deaf: func() { t.Error("it has read") }}
	long := strings.Repeat("x", 3*heardAtOnce+1)
	go func() {
		attentive.Write([]byte(long))
		attentive.Close()
	}()
	if b, err := io.ReadAll(listening); err != nil || string(b) != long {
		t.Errorf("%d bytes of %d, %v", len(b), len(long), err)
	}
}
