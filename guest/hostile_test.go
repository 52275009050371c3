// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// HTTP/2 by hand: a library would keep an attacker from most of this.
const (
	fData, fHeaders, fReset, fSettings, fPush, fPing, fGoAway, fWindow, fContinuation = 0, 1, 3, 4, 5, 6, 7, 8, 9
	endStream, endHeaders, ack                                                        = 1, 4, 1
)

// The header blocks that attacks need, in HPACK: indexed fields, and literals
// that are not indexed.
var (
	status200 = []byte{0x88}
	status103 = literal(8, "103")
	status302 = append(literal(8, "302"), literal(46, "http://169.254.169.254/")...)
)

func literal(name byte, value string) []byte {
	b := []byte{name}
	if name >= 15 {
		b = []byte{15, name - 15}
	}
	return append(append(b, byte(len(value))), value...)
}

// evil is an agent that was taken over.
type evil struct {
	conn    net.Conn
	mute    bool // acknowledges nothing
	deaf    bool // reads nothing after a request
	mu      sync.Mutex
	stopped chan struct{} // closed when the host has cut the connection
	quit    chan struct{} // closed when the test ends
}

func (e *evil) send(kind, flags byte, stream uint32, payload []byte) error {
	b := make([]byte, 9, 9+len(payload))
	b[0], b[1], b[2], b[3], b[4] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags
	binary.BigEndian.PutUint32(b[5:], stream)
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.conn.Write(append(b, payload...))
	return err
}

// forever repeats frames until the host cuts the connection.
func (e *evil) forever(frames ...[]byte) {
	chunk := bytes.Repeat(bytes.Join(frames, nil), 200)
	for {
		e.mu.Lock()
		_, err := e.conn.Write(chunk)
		e.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func raw(kind, flags byte, stream uint32, payload []byte) []byte {
	var b bytes.Buffer
	e := &evil{conn: writeOnly{&b}}
	e.send(kind, flags, stream, payload)
	return b.Bytes()
}

type writeOnly struct{ io.Writer }

func (writeOnly) Read([]byte) (int, error)         { return 0, io.EOF }
func (writeOnly) Close() error                     { return nil }
func (writeOnly) LocalAddr() net.Addr              { return nil }
func (writeOnly) RemoteAddr() net.Addr             { return nil }
func (writeOnly) SetDeadline(time.Time) error      { return nil }
func (writeOnly) SetReadDeadline(time.Time) error  { return nil }
func (writeOnly) SetWriteDeadline(time.Time) error { return nil }

// serve reads frames and calls attack for each request. It goes on until the
// host cuts the connection.
func (e *evil) serve(attack func(e *evil, stream uint32)) {
	defer close(e.stopped)
	var attacks sync.WaitGroup
	defer attacks.Wait()
	defer e.conn.Close()
	if _, err := io.CopyN(io.Discard, e.conn, 24); err != nil {
		return
	}
	e.send(fSettings, 0, 0, nil)
	for {
		var h [9]byte
		if _, err := io.ReadFull(e.conn, h[:]); err != nil {
			return
		}
		n := int64(h[0])<<16 | int64(h[1])<<8 | int64(h[2])
		payload := make([]byte, n)
		if _, err := io.ReadFull(e.conn, payload); err != nil {
			return
		}
		switch kind, flags := h[3], h[4]; {
		case kind == fSettings && flags&ack == 0 && !e.mute:
			e.send(fSettings, ack, 0, nil)
		case kind == fPing && flags&ack == 0 && !e.mute:
			e.send(fPing, ack, 0, payload)
		case kind == fHeaders && e.deaf:
			<-e.quit
		case kind == fHeaders:
			attacks.Go(func() { attack(e, binary.BigEndian.Uint32(h[5:])) })
		}
	}
}

// bounds are what a client gives an agent that is to make an error say something:
// little where its time is to be over, and else the usual, which a busy machine
// does not use up before the answer is there.
func bounds(says string) guest.Options {
	const soon = 200 * time.Millisecond
	o := guest.Options{User: sandbox.DefaultUser()}
	switch says {
	case "nothing arrived":
		o.IdleTimeout = soon
	case "start in time", "begin in time":
		o.CallTimeout = soon
	case "":
		o.CallTimeout, o.IdleTimeout, o.TransferTimeout = 2*soon, soon, 3*soon
		o.PingAfter, o.PingTimeout = soon/2, soon/2
	}
	return o
}

// host connects a client to an evil agent.
func host(t *testing.T, o guest.Options, e *evil, attack func(e *evil, stream uint32)) (*guest.Client, *evil) {
	t.Helper()
	fd, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, n := range fd {
		f := os.NewFile(uintptr(n), "")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	e.conn, e.stopped, e.quit = conns[1], make(chan struct{}), make(chan struct{})
	go e.serve(attack)
	c, err := guest.NewClient(conns[0], o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		close(e.quit)
		e.conn.Close()
		<-e.stopped
	})
	return c, e
}

// The calls that an attack is tried on.
var (
	health  = func(ctx context.Context, c *guest.Client) error { return c.Health(ctx) }
	stat    = func(ctx context.Context, c *guest.Client) error { _, err := c.Stat(ctx, "/x"); return err }
	execute = func(ctx context.Context, c *guest.Client) error {
		x := program("true")
		x.Stdout = io.Discard
		_, err := c.Run(ctx, x)
		return err
	}
	read = func(ctx context.Context, c *guest.Client) error {
		_, err := c.ReadFile(ctx, "/x", io.Discard, 64<<10)
		return err
	}
	write = func(ctx context.Context, c *guest.Client) error {
		return c.WriteFile(ctx, "/x", io.LimitReader(zeros{}, 1<<30), sandbox.WriteOptions{})
	}
	collectAll = func(ctx context.Context, c *guest.Client) error {
		_, err := c.Collect(ctx, []string{"**"}, "/", func(guest.File) (io.Writer, error) { return io.Discard, nil }, guest.CollectLimits{Bytes: 128 << 10})
		return err
	}
	// listenTo starts a process and reads it to its end.
	listenTo = func(ctx context.Context, c *guest.Client) error {
		p, err := c.Start(ctx, guest.Command{Path: "true"})
		if err != nil {
			return err
		}
		defer p.Close()
		for {
			if _, err := p.Next(); err != nil {
				return err
			}
		}
	}
	watchAll = func(ctx context.Context, c *guest.Client) error {
		w, err := c.Watch(ctx, "/x", sandbox.WatchOptions{})
		if err != nil {
			return err
		}
		defer w.Close()
		for {
			if _, err := w.Next(); err != nil {
				return err
			}
		}
	}
	download = func(ctx context.Context, c *guest.Client) error {
		d, err := c.Download(ctx, "/x", nil)
		if err != nil {
			return err
		}
		defer d.Body.Close()
		_, err = io.Copy(io.Discard, d.Body)
		return err
	}
	upload = func(ctx context.Context, c *guest.Client) error {
		_, err := c.Upload(ctx, "x", io.LimitReader(zeros{}, 1<<30), sandbox.WriteOptions{})
		return err
	}
	// tunnel writes for ever to a port that takes it or not.
	tunnel = func(ctx context.Context, c *guest.Client) error {
		conn, err := c.DialPort(ctx, 80)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Second))
		_, err = io.Copy(conn, zeros{})
		return &sandbox.Error{Op: "tunnel", Kind: sandbox.ErrUnavailable, Problem: "it ended", Cause: err}
	}
	listeners = func(ctx context.Context, c *guest.Client) error { _, err := c.Processes(ctx); return err }
	listing   = func(ctx context.Context, c *guest.Client) error { _, err := c.List(ctx, "/", 1); return err }
	metrics   = func(ctx context.Context, c *guest.Client) error { _, err := c.Metrics(ctx); return err }
	polled    = func(ctx context.Context, c *guest.Client) error { _, err := c.WatcherEvents(ctx, "w"); return err }
	watcher   = func(ctx context.Context, c *guest.Client) error {
		_, err := c.CreateWatcher(ctx, "/x", sandbox.WatchOptions{})
		return err
	}
	// unread asks for much and reads none of it.
	unread = func(ctx context.Context, c *guest.Client) error {
		var all sync.WaitGroup
		var failed atomic.Pointer[error]
		release := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(release) })
		for range 100 {
			all.Go(func() {
				_, err := c.ReadFile(ctx, "/x", writerFunc(func([]byte) (int, error) { <-release; return 0, io.ErrShortWrite }), 1<<30)
				failed.Store(&err)
			})
		}
		all.Wait()
		return *failed.Load()
	}
)

// frames is an answer with some of our frames.
func frames(f ...[]byte) func(*evil, uint32) {
	return func(e *evil, s uint32) {
		e.send(fHeaders, endHeaders, s, status200)
		body := bytes.Join(f, nil)
		for len(body) > 0 {
			n := min(len(body), 16<<10)
			e.send(fData, 0, s, body[:n])
			body = body[n:]
		}
		e.send(fData, endStream, s, nil)
	}
}

// message is an envelope of a watch.
func message(s string) []byte { return wire.AppendFrame(nil, 0, []byte(s)) }

func frame(k wire.Kind, payload string) []byte { return wire.AppendFrame(nil, k, []byte(payload)) }

// Whatever the agent does, each call ends in time with an error, the host's
// memory stays flat, and an agent that floods is cut off.
func TestHostileAgent(t *testing.T) {
	big := bytes.Repeat([]byte{0x55}, 16<<10)
	for _, tt := range []struct {
		name   string
		call   func(context.Context, *guest.Client) error
		attack func(*evil, uint32)
		mute   bool
		deaf   bool
		cut    bool   // the session must end, not only the call
		says   string // in the error
	}{
		{name: "silent", call: health, attack: func(*evil, uint32) {}},
		{name: "silent exec", call: execute, attack: func(*evil, uint32) {}, says: "start in time"},
		{name: "started, then silent", call: execute, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.send(fData, 0, s, frame(wire.Started, `{"pid":7}`))
		}, says: "nothing arrived"},
		{name: "acknowledges nothing", call: health, mute: true, cut: true, attack: func(*evil, uint32) {}},
		{name: "a byte now and then", call: stat, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			for range time.Tick(50 * time.Millisecond) {
				if e.send(fData, 0, s, []byte{' '}) != nil {
					return
				}
			}
		}},
		{name: "never reads", call: write, deaf: true},
		{name: "takes the body, gives no window", call: write, attack: func(*evil, uint32) {}},
		{name: "no HTTP/2", call: health, cut: true, attack: func(e *evil, _ uint32) { e.conn.Write(bytes.Repeat([]byte("HTTP/1.1 200 OK\r\n\r\n"), 1000)) }},
		{name: "random bytes", call: health, cut: true, attack: func(e *evil, _ uint32) { e.forever(big) }},
		{name: "a long header", call: health, attack: func(e *evil, s uint32) {
			block := append(literal(8, "200"), 0, 1, 'x', 0x7f, 0xa1, 0x9a, 0x0c) // a value of 200 000 bytes
			e.send(fHeaders, 0, s, block)
			for range 20 {
				e.send(fContinuation, 0, s, big[:10_000])
			}
			e.send(fContinuation, endHeaders, s, nil)
		}},
		{name: "endless CONTINUATION", call: health, cut: true, attack: func(e *evil, s uint32) {
			e.send(fHeaders, 0, s, status200)
			e.forever(raw(fContinuation, 0, s, literal(8, "200")))
		}},
		{name: "push", call: health, cut: true, attack: func(e *evil, s uint32) { e.send(fPush, endHeaders, s, []byte{0, 0, 0, 2, 0x88}) }},
		{name: "endless interim answers", call: health, cut: true, attack: func(e *evil, s uint32) { e.forever(raw(fHeaders, endHeaders, s, status103)) }},
		{name: "endless empty DATA", call: stat, cut: true, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.forever(raw(fData, 0, s, nil))
		}},
		{name: "endless padding", call: stat, cut: true, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.forever(raw(fData, 8, s, append([]byte{255}, make([]byte, 255)...)))
		}},
		{name: "DATA for a stream that ended", call: stat, cut: true, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders|endStream, s, status200)
			e.forever(raw(fData, 0, s, []byte{1}))
		}},
		{name: "pings", call: health, cut: true, attack: func(e *evil, _ uint32) { e.forever(raw(fPing, 0, 0, make([]byte, 8))) }},
		{name: "ping acknowledgements", call: health, cut: true, attack: func(e *evil, _ uint32) { e.forever(raw(fPing, ack, 0, make([]byte, 8))) }},
		{name: "settings", call: health, cut: true, attack: func(e *evil, _ uint32) { e.forever(raw(fSettings, 0, 0, nil)) }},
		{name: "window updates", call: health, cut: true, attack: func(e *evil, _ uint32) { e.forever(raw(fWindow, 0, 0, []byte{0, 0, 0, 1})) }},
		{name: "resets", call: health, cut: true, attack: func(e *evil, s uint32) { e.forever(raw(fReset, 0, s, []byte{0, 0, 0, 8})) }},
		{name: "unknown frames", call: health, cut: true, attack: func(e *evil, _ uint32) { e.forever(raw(0xbe, 0, 0, []byte("x"))) }},
		{name: "goodbyes", call: health, cut: true, attack: func(e *evil, s uint32) { e.forever(raw(fGoAway, 0, 0, []byte{0x7f, 255, 255, 255, 0, 0, 0, 0})) }},
		{name: "no stream may begin", call: func(ctx context.Context, c *guest.Client) error {
			c.Health(ctx)
			return c.Health(ctx)
		}, attack: func(e *evil, _ uint32) { e.send(fSettings, 0, 0, []byte{0, 3, 0, 0, 0, 0}) }},
		{name: "100 answers that nobody reads", call: unread, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			for range 4 << 20 / len(big) { // with no regard for any window
				if e.send(fData, 0, s, big) != nil {
					return
				}
			}
		}},
		{name: "an answer without end", call: stat, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.forever(raw(fData, 0, s, big))
		}},
		{name: "redirect", call: health, attack: func(e *evil, s uint32) { e.send(fHeaders, endHeaders|endStream, s, status302) }, says: "status 302"},
		{name: "not JSON", call: stat, attack: frames([]byte("}{")), says: "no JSON"},
		{name: "many entries of nothing", call: listing, attack: frames([]byte(`{"entries":[`), bytes.Repeat([]byte("{},"), 80_000), []byte("{}]}")), says: "objects"},
		{name: "deep JSON", call: stat, attack: frames(bytes.Repeat([]byte(`{"entry":`), 20_000)), says: "no JSON"},
		{name: "empty JSON", call: stat, attack: frames([]byte("{}")), says: "is empty"},
		{name: "a frame of 4 GiB", call: execute, attack: frames([]byte{byte(wire.Stdout), 255, 255, 255, 255}), says: "longer than"},
		{name: "a frame cut short", call: execute, attack: frames(frame(wire.Stdout, "12345")[:7]), says: "unexpected EOF"},
		{name: "an unknown frame", call: execute, attack: frames(frame('?', "")), says: "unknown frame"},
		{name: "a file in an exec", call: execute, attack: frames(frame(wire.File, "{}")), says: "no place"},
		{name: "no exit", call: execute, attack: frames(frame(wire.Started, `{"pid":1}`)), says: "unexpected EOF"},
		{name: "an exit that is no JSON", call: execute, attack: frames(frame(wire.Exit, "no")), says: "invalid character"},
		{name: "a failure with a terminal's codes", call: execute, attack: frames(frame(wire.Exit, `{"failure":"x","message":"\u001b]0;gotcha\u0007"}`)), says: `\x1b]0;gotcha\a`},
		{name: "a file beyond the limit", call: read, attack: frames(bytes.Repeat([]byte("x"), 65<<10)), says: "larger than 65536"},
		{name: "dotdot", call: collectAll, attack: frames(frame(wire.File, `{"path":"a/../../etc/passwd"}`)), says: "no name"},
		{name: "absolute", call: collectAll, attack: frames(frame(wire.File, `{"path":"/etc/passwd"}`)), says: "absolute"},
		{name: "NUL", call: collectAll, attack: frames(frame(wire.File, `{"path":"a\u0000b"}`)), says: "control character"},
		{name: "newline", call: collectAll, attack: frames(frame(wire.File, `{"path":"a\nb"}`)), says: "control character"},
		{name: "turned-around text", call: collectAll, attack: frames(frame(wire.File, `{"path":"a\u202egnp.exe"}`)), says: "control character"},
		{name: "empty name", call: collectAll, attack: frames(frame(wire.File, `{"path":""}`)), says: "empty"},
		{name: "twice", call: collectAll, attack: frames(frame(wire.File, `{"path":"a"}`), frame(wire.FileEnd, "{}"), frame(wire.File, `{"path":"a"}`)), says: "twice"},
		{name: "file, then directory", call: collectAll, attack: frames(frame(wire.File, `{"path":"a"}`), frame(wire.FileEnd, "{}"), frame(wire.File, `{"path":"a/b"}`)), says: "as a file and as a directory"},
		{name: "directory, then file", call: collectAll, attack: frames(frame(wire.File, `{"path":"a/b"}`), frame(wire.FileEnd, "{}"), frame(wire.File, `{"path":"a"}`)), says: "as a file and as a directory"},
		{name: "too deep", call: collectAll, attack: frames(frame(wire.File, `{"path":"`+strings.Repeat("d/", 40)+`f"}`)), says: "deeper"},
		{name: "too many", call: collectAll, attack: frames(manyFiles(1001)), says: "more than 1000"},
		{name: "too many skipped", call: collectAll, attack: frames(bytes.Repeat(frame(wire.Skipped, `{"path":"x"}`), 1001)), says: "more than 1000"},
		{name: "too large", call: collectAll, attack: frames(frame(wire.File, `{"path":"a"}`), bytes.Repeat(frame(wire.Data, strings.Repeat("x", 64<<10)), 3)), says: "larger than 131072"},
		{name: "silent start", call: listenTo, attack: func(*evil, uint32) {}, says: "begin in time"},
		{name: "begun, then silent", call: listenTo, attack: func(e *evil, s uint32) { e.send(fHeaders, endHeaders, s, status200) }, says: "nothing arrived"},
		{name: "a process, then silent", call: listenTo, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.send(fData, 0, s, frame(wire.Started, `{"pid":7}`))
		}, says: "nothing arrived"},
		{name: "output before the start", call: listenTo, attack: frames(frame(wire.Stdout, "x")), says: "before the start"},
		{name: "a process without a number", call: listenTo, attack: frames(frame(wire.Started, `{"pid":-4}`)), says: "no process"},
		{name: "started twice", call: listenTo, attack: frames(frame(wire.Started, `{"pid":7}`), frame(wire.Started, `{"pid":8}`)), says: "behind the start"},
		{name: "a process without an end", call: listenTo, attack: frames(frame(wire.Started, `{"pid":7}`), frame(wire.Stdout, "x")), says: "unexpected EOF"},
		{name: "output of 4 GiB", call: listenTo, attack: frames(frame(wire.Started, `{"pid":7}`), []byte{byte(wire.Stdout), 255, 255, 255, 255}), says: "longer than"},
		{name: "signs of life without end", call: listenTo, cut: true, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.send(fData, 0, s, frame(wire.Started, `{"pid":7}`))
			e.forever(raw(fData, 0, s, nil))
		}},
		{name: "processes without end", call: listeners, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.forever(raw(fData, 0, s, big))
		}},
		{name: "metrics that are text", call: metrics, attack: frames([]byte(`{"mem_total":"many"}`)), says: "no JSON"},
		{name: "a watch that does not start", call: watchAll, attack: frames(message(`{"filesystem":{"name":"a","type":"EVENT_TYPE_CREATE"}}`)), says: "no start"},
		{name: "a watch of 4 GiB", call: watchAll, attack: frames([]byte{0, 255, 255, 255, 255}), says: "an envelope has"},
		{name: "a watch that is packed", call: watchAll, attack: frames([]byte{1, 0, 0, 0, 2, '{', '}'}), says: "an envelope has"},
		{name: "a change of no kind", call: watchAll, attack: frames(message(`{"start":{}}`), message(`{"filesystem":{"name":"a","type":"\u001b[2J"}}`)), says: "is no change"},
		{name: "a change that says nothing", call: watchAll, attack: frames(message(`{"start":{}}`), message(`{}`)), says: "says nothing"},
		{name: "a watch cut short", call: watchAll, attack: frames(message(`{"start":{}}`), message(`{"filesystem":{}}`)[:9]), says: "unexpected EOF"},
		{name: "a watch without an end", call: watchAll, attack: frames(message(`{"start":{}}`)), says: "unexpected EOF"},
		{name: "a refusal with a terminal's codes", call: watchAll, attack: frames(wire.AppendFrame(nil, 2, []byte(`{"error":{"code":"\u001b","message":"\u001b[2J"}}`))), says: `\x1b[2J`},
		{name: "changes that are none", call: polled, attack: frames([]byte(`{"events":[null,{"type":"x"}]}`)), says: "is no change"},
		{name: "a watcher without a name", call: watcher, attack: frames([]byte(`{}`)), says: "names no watcher"},
		{name: "a watcher with a long name", call: watcher, attack: frames([]byte(`{"watcherId":"` + strings.Repeat("w", 65) + `"}`)), says: "names no watcher"},
		{name: "a download that stops", call: download, attack: func(e *evil, s uint32) {
			e.send(fHeaders, endHeaders, s, status200)
			e.send(fData, 0, s, []byte("x"))
		}, says: "nothing arrived"},
		{name: "a download elsewhere", call: download, attack: func(e *evil, s uint32) { e.send(fHeaders, endHeaders|endStream, s, status302) }, says: "status 302"},
		{name: "an upload that nobody takes", call: upload, attack: func(*evil, uint32) {}},
		{name: "a tunnel that nobody reads", call: tunnel, attack: func(e *evil, s uint32) { e.send(fHeaders, endHeaders, s, status200) }},
		{name: "a tunnel to nowhere", call: tunnel, attack: func(*evil, uint32) {}, says: "begin in time"},
		{name: "what nobody asked for", call: func(ctx context.Context, c *guest.Client) error {
			_, err := c.Collect(ctx, []string{"out/*.png"}, "/", func(guest.File) (io.Writer, error) { return io.Discard, nil }, guest.CollectLimits{})
			return err
		}, attack: frames(frame(wire.File, `{"path":".bashrc"}`)), says: "was not asked for"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, e := host(t, bounds(tt.says), &evil{mute: tt.mute, deaf: tt.deaf}, tt.attack)
			heap := watchHeap()
			start := time.Now()
			err := tt.call(t.Context(), c)
			took, grown := time.Since(start), heap()
			if err == nil {
				t.Error("the call succeeds")
			} else if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is %v, which does not say %q", err, tt.says)
			}
			var mine *sandbox.Error
			if !errors.As(err, &mine) || mine.Kind == nil {
				t.Errorf("the error %v has no kind", err)
			}
			if took > timeout/2 {
				t.Errorf("the call took %v", took)
			}
			if grown > 24<<20 {
				t.Errorf("the host's heap grew by %d MiB", grown>>20)
			}
			if tt.cut {
				select {
				case <-e.stopped:
				case <-time.After(timeout):
					t.Error("the session goes on")
				}
			}
		})
	}
}

func manyFiles(n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, frame(wire.File, fmt.Sprintf(`{"path":"f%d"}`, i))...)
		b = append(b, frame(wire.FileEnd, "{}")...)
	}
	return b
}

// watchHeap returns a function that says by how much the heap has grown at
// most, in bytes.
func watchHeap() func() int64 {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	first, stop, peak := heap(), make(chan struct{}), make(chan int64)
	go func() {
		highest := first
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				highest = max(highest, heap())
			case <-stop:
				peak <- highest
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-peak - first }
}
