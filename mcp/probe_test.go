// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// after is a program that gets its input by way of filter.
func after(filter func(in *bufio.Scanner, line func(string)), prog func(context.Context, io.Reader, io.Writer, io.Writer) int) func(context.Context, io.Reader, io.Writer, io.Writer) int {
	return func(ctx context.Context, in io.Reader, out, errs io.Writer) int {
		r, w := io.Pipe()
		go func() {
			filter(bufio.NewScanner(in), func(l string) { io.WriteString(w, l+"\n") })
			w.Close()
		}()
		return prog(ctx, r, out, errs)
	}
}

// silentBefore lets a server hear nothing that comes before the handshake.
func silentBefore(in *bufio.Scanner, line func(string)) {
	shaken := false
	for in.Scan() {
		if shaken = shaken || strings.Contains(in.Text(), `"initialize"`); shaken {
			line(in.Text())
		}
	}
}

// TestSilentServer: a server from before server/discover that says nothing to it is asked
// for the handshake, by a review and for a client that has none.
func TestSilentServer(t *testing.T) {
	b := newBench(t, after(silentBefore, sdkServer(func(s *sdk.Server) { addTool(s, "read", "Read.", says("read")) })))
	b.timeout = time.Millisecond
	reviews, err := b.make().Review(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(reviews[0].Tools) != 1 || b.level.starts() != 1 {
		t.Errorf("%d tools, started %d times", len(reviews[0].Tools), b.level.starts())
	}
	b.serve()
	if text, _ := b.call("read", `{}`); text != "read" || b.level.starts() != 2 {
		t.Errorf("%q, started %d times", text, b.level.starts())
	}
}

// TestSlowServer: one that knows no handshake and is only slow to start is waited for,
// when it was started again.
func TestSlowServer(t *testing.T) {
	begun := 0
	slow := func(in *bufio.Scanner, line func(string)) {
		var early []string
		for begun++; begun == 1 && in.Scan(); {
			early = append(early, in.Text())
			if strings.Contains(in.Text(), `"initialize"`) {
				break
			}
		}
		for _, l := range early {
			line(l)
		}
		for in.Scan() {
			line(in.Text())
		}
	}
	b := newBench(t, after(slow, sdkServer(func(s *sdk.Server) {
		s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
				if method == "initialize" {
					return nil, errSilent
				}
				return next(ctx, method, req)
			}
		})
		addTool(s, "read", "Read.", says("read"))
	})))
	b.timeout = time.Millisecond
	reviews, err := b.make().Review(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(reviews[0].Tools) != 1 || b.level.starts() != 2 {
		t.Errorf("%d tools, started %d times", len(reviews[0].Tools), b.level.starts())
	}
}
