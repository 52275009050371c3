// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

var stdioTests = []test{
	{name: "streams while it runs", run: testStreaming},
	{name: "no input is an empty one", run: testNoInput},
	{name: "large and binary", run: testLargeBinary},
	{name: "from a file", run: testFileInput},
	{name: "apart and in full", run: testBothOutputs},
	{name: "input that is not read", run: testUnreadInput},
	{name: "a failed write kills", run: testFailedWrite},
	{name: "memory of the caller stays flat", run: testFlatMemory},
	{name: "a background child holds nothing up", run: testBackgroundChild},
}

// testStreaming answers each line only when it has seen it.
func testStreaming(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	stdin, in := pipe(t)
	x := w.exec("sh", "-c", `while read -r line; do echo "got $line"; done; echo end`)
	x.Stdin = stdin
	var all bytes.Buffer
	seen := make(chan string, 16)
	x.Stdout = writer(func(b []byte) (int, error) {
		all.Write(b)
		seen <- string(b)
		return len(b), nil
	})
	go func() {
		for _, word := range []string{"one", "two", "three"} {
			io.WriteString(in, word+"\n")
			for got := ""; !strings.Contains(got, "got "+word+"\n"); {
				select {
				case b := <-seen:
					got += b
				case <-t.Context().Done():
					return
				}
			}
		}
		in.Close()
	}()
	w.start(t, timeout(t), r, x).ok(t)
	if want := "got one\ngot two\ngot three\nend\n"; all.String() != want {
		t.Errorf("%q, want %q", all.String(), want)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func testNoInput(t *testing.T, s *suite, r road) {
	if o := s.fixture(t).run(t, r, "wc", "-c").ok(t); strings.TrimSpace(o.out) != "0" {
		t.Errorf("%q bytes of input, want none", o.out)
	}
}

func testLargeBinary(t *testing.T, s *suite, r road) {
	data := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	w := s.fixture(t)
	x := w.exec("cat")
	x.Stdin = bytes.NewReader(data)
	o := w.start(t, timeout(t), r, x).ok(t)
	if sha256.Sum256([]byte(o.out)) != sha256.Sum256(data) {
		t.Errorf("%d bytes came back changed, of %d", len(o.out), len(data))
	}
}

// A file's offset is the caller's: reading begins where it stands.
func testFileInput(t *testing.T, s *suite, r road) {
	name := s.path(t) + "/in"
	write(t, name, "skipped and read", 0o600)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(8, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	w := s.fixture(t)
	x := w.exec("cat")
	x.Stdin = f
	if o := w.start(t, timeout(t), r, x).ok(t); o.out != "and read" {
		t.Errorf("%q", o.out)
	}
}

func testBothOutputs(t *testing.T, s *suite, r road) {
	o := s.fixture(t).run(t, r, "sh", "-c", `seq 1 20000; seq 1 20000 | sed s/^/e/ >&2; printf 'no newline, \000 and \377'`).ok(t)
	if n := strings.Count(o.out, "\n"); n != 20000 || !strings.HasSuffix(o.out, "20000\nno newline, \x00 and \xff") {
		t.Errorf("stdout has %d lines and ends with %q", n, o.out[max(0, len(o.out)-40):])
	}
	if n := strings.Count(o.errs, "\n"); n != 20000 || !strings.HasSuffix(o.errs, "e20000\n") {
		t.Errorf("stderr has %d lines", n)
	}
}

// The program may end without reading; its input must not hold the end up.
func testUnreadInput(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	endless, _ := pipe(t)
	x := w.exec("sh", "-c", "exit 3")
	x.Stdin = endless
	w.start(t, timeout(t), r, x).exited(t, 3)

	x = w.exec("head", "-c", "5")
	x.Stdin = io.LimitReader(writerSource{}, 64<<20)
	if o := w.start(t, timeout(t), r, x).ok(t); o.out != "aaaaa" {
		t.Errorf("%q", o.out)
	}
}

// writerSource reads "a" for ever.
type writerSource struct{}

func (writerSource) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a'
	}
	return len(b), nil
}

func testFailedWrite(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	x := w.exec("yes")
	n := 0
	x.Stdout = writer(func(b []byte) (int, error) {
		if n += len(b); n > 1<<20 {
			return 0, errors.New("enough")
		}
		return len(b), nil
	})
	ctx := timeout(t)
	res, err := r.run(ctx, w.spec, x)
	if ctx.Err() != nil {
		t.Error("it went on until the deadline")
	}
	if err == nil && (res.Signal == "" || res.ExitCode != nil) {
		t.Errorf("ended with %+v, want a signal", res)
	}
}

func testFlatMemory(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	x := w.exec("head", "-c", "100000000", "/dev/zero")
	var n int64
	x.Stdout = writer(func(b []byte) (int, error) { n += int64(len(b)); return len(b), nil })
	before := rss(t)
	w.start(t, timeout(t), r, x).ok(t)
	if n != 100_000_000 {
		t.Errorf("%d bytes came out, want 100 million", n)
	}
	if grown := rss(t) - before; grown > 32<<20 {
		t.Errorf("our memory grew by %d MiB", grown>>20)
	}
}

// rss is how much memory this process has in use, in bytes.
func rss(t *testing.T) int64 {
	t.Helper()
	fields := strings.Fields(read(t, "/proc/self/statm"))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func testBackgroundChild(t *testing.T, s *suite, r road) {
	// Who waits for the child is ended after runLimit.
	if o := s.fixture(t).run(t, r, "sh", "-c", "sleep 1000 & echo started").ok(t); o.out != "started\n" {
		t.Errorf("%q", o.out)
	}
}
