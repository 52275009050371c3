// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseLooked(t *testing.T) {
	got, err := parseLooked("looked [[1,2],[18446744073709551615,3]]", 2)
	if err != nil || got[0] != (object{1, 2}) || got[1] != (object{1<<64 - 1, 3}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "looked ", "looked [[1,2]]", "looked [[1,2],[3]]x", "looked [[1,2],[-1,3]]", "looked [[1,2],[3,4],[5,6]]", "panic: [[1,2],[3,4]]"} {
		if got, err := parseLooked(bad, 2); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func FuzzParseLooked(f *testing.F) {
	f.Add("looked [[1,2]]", 1)
	f.Add("looked [[1,2],[3]]", 2)
	f.Fuzz(func(t *testing.T, line string, n int) {
		if got, err := parseLooked(line, n); err == nil && len(got) != n {
			t.Errorf("%d objects of %d", len(got), n)
		}
	})
}

// piped is an attached container at whose other end the test sits.
func piped(t testing.TB) (*attached, net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	a := &attached{conn: ours, broken: make(chan struct{})}
	a.log.maximum = logTail
	a.out = demux{r: ours, log: writerFunc(a.complain)}
	return a, theirs
}

// The first line comes in pieces; what follows it is the stream's.
func TestFirstLine(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, engine := piped(t)
		text := "looked [[1,2]]\nand more"
		cut := rapid.IntRange(0, len(text)).Draw(r, "cut")
		go func() {
			for _, f := range [][]byte{frame(frameStderr, []byte(text[:cut])), frame(frameStderr, []byte(text[cut:])), frame(frameStdout, []byte("stream"))} {
				engine.Write(f)
			}
			engine.Close()
		}()
		line, err := a.firstLine(t.Context())
		if err != nil || line != "looked [[1,2]]" {
			r.Fatalf("%q, %v", line, err)
		}
		var rest strings.Builder
		if _, err := io.Copy(&rest, a); err != nil || rest.String() != "stream" {
			r.Fatalf("%q, %v", &rest, err)
		}
	})
}

func TestFirstLineNeverWaitsForEver(t *testing.T) {
	a, engine := piped(t)
	go engine.Write(frame(frameStdout, []byte("hello")))
	if line, err := a.firstLine(t.Context()); err == nil {
		t.Errorf("an agent that speaks first passes: %q", line)
	}
	a, engine = piped(t)
	go func() { engine.Write(frame(frameStderr, []byte("half"))); engine.Close() }()
	if line, err := a.firstLine(t.Context()); err == nil {
		t.Errorf("an agent that ends passes: %q", line)
	}
	a, _ = piped(t)
	done := make(chan error, 1)
	go func() { _, err := a.looked(t.Context(), 1); done <- err }()
	a.conn.SetReadDeadline(time.Unix(1, 0)) // as at the end of a context
	if err := <-done; err == nil {
		t.Error("an agent that says nothing passes")
	}
}
