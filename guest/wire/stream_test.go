// SPDX-License-Identifier: Apache-2.0

//go:build linux

package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socketpair returns two ends of a stream.
func socketpair(t testing.TB) (a, b *os.File) {
	t.Helper()
	fd, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = os.NewFile(uintptr(fd[0]), "a"), os.NewFile(uintptr(fd[1]), "b")
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// pipes returns two ends of a stream made of two pipes.
func pipes(t testing.TB) (a, b Stream) {
	t.Helper()
	var f [4]*os.File
	for i := 0; i < 4; i += 2 {
		var fd [2]int
		if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		f[i], f[i+1] = os.NewFile(uintptr(fd[0]), "r"), os.NewFile(uintptr(fd[1]), "w")
	}
	a, b = Pair(f[0], f[3]), Pair(f[2], f[1])
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// echo serves sessions that send back what they get, until the stream ends.
func echo(l *Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		io.Copy(c, c)
		c.Close()
	}
}

// start runs echo on b and returns the other end's opener.
func start(t testing.TB, a, b Stream) *Opener {
	t.Helper()
	mark := NewMark()
	done := make(chan error, 1)
	go func() { done <- echo(NewListener(b, mark, 0)) }()
	t.Cleanup(func() {
		a.Close()
		if err := <-done; err != io.EOF {
			t.Errorf("listener ended with %v, want EOF", err)
		}
	})
	return NewOpener(a, mark)
}

func open(t testing.TB, o *Opener) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := o.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func exchange(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Fatalf("got %q, want %q", got, text)
	}
}

func TestSessionsFollowEachOther(t *testing.T) {
	a, b := socketpair(t)
	pa, pb := pipes(t)
	for name, o := range map[string]*Opener{"socket": start(t, a, b), "pipes": start(t, pa, pb)} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				c := open(t, o)
				exchange(t, c, "hello")
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a closed session takes a write: %v", err)
				}
			}
		})
	}
}

// A session begins although the one before it was left in the middle of
// everything: unread answers, half a request, a reader blocked.
func TestOpenOnDirtyStream(t *testing.T) {
	a, b := socketpair(t)
	o := start(t, a, b)
	for range 20 {
		old := open(t, o)
		go old.Write(bytes.Repeat([]byte("stale"), 100_000)) // the echo is not read
		blocked := make(chan struct{})
		go func() { defer close(blocked); io.ReadFull(old, make([]byte, 10)) }()
		<-blocked
		exchange(t, open(t, o), "fresh")
	}
}

// A session that is dropped says no more, and the next begins right.
func TestDrop(t *testing.T) {
	a, b := socketpair(t)
	o := start(t, a, b)
	o.Drop()
	old := open(t, o)
	exchange(t, old, "before")
	o.Drop()
	if n, err := old.Write([]byte("x")); err == nil {
		t.Errorf("%d bytes were written to a session that was dropped", n)
	}
	exchange(t, open(t, o), "fresh")
}

func TestBannerBeforeTheAgent(t *testing.T) {
	a, b := socketpair(t)
	if _, err := io.WriteString(b, "Welcome to the sandbox!\r\n"); err != nil {
		t.Fatal(err)
	}
	exchange(t, open(t, start(t, a, b)), "hello")
}

// An echoing terminal between the two must not answer for the guest.
func TestEchoIsNoAnswer(t *testing.T) {
	a, b := socketpair(t)
	go io.Copy(b, b)
	t.Cleanup(func() { a.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NewOpener(a, NewMark()).Open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Open = %v, want the deadline", err)
	}
}

func TestOpenGivesUpOnGarbage(t *testing.T) {
	a, b := socketpair(t)
	go func() {
		chunk := bytes.Repeat([]byte{'y'}, 64<<10)
		for {
			if _, err := b.Write(chunk); err != nil {
				return
			}
		}
	}()
	_, err := NewOpener(a, NewMark()).Open(t.Context())
	a.Close()
	if err == nil {
		t.Fatal("Open succeeds on garbage")
	}
}

func TestOpenFailsOnDeadStream(t *testing.T) {
	a, b := socketpair(t)
	b.Close()
	if _, err := NewOpener(a, NewMark()).Open(t.Context()); err == nil {
		t.Fatal("Open succeeds on a dead stream")
	}
}

// A guest that stays survives an end of file, as it must inside a checkpoint.
func TestListenerStays(t *testing.T) {
	a, b := socketpair(t)
	swap := &swappable{s: b}
	mark := NewMark()
	l := NewListener(swap, mark, time.Minute)
	done := make(chan error, 1)
	go func() { done <- echo(l) }()

	exchange(t, open(t, NewOpener(a, mark)), "before")
	a.Close()
	a, b = socketpair(t)
	swap.set(b) // as a restore does it, below the guest
	exchange(t, open(t, NewOpener(a, mark)), "after")
	l.Close()
	if err := <-done; err == nil {
		t.Error("a closed listener accepts")
	}
}

func TestParseMark(t *testing.T) {
	m := NewMark()
	got, err := ParseMark(m.String())
	if err != nil || got != m {
		t.Errorf("ParseMark(String) = %v, %v", got, err)
	}
	for _, bad := range []string{"", "zz", m.String()[1:], m.String() + "00", Mark{}.String(), "g" + m.String()[1:]} {
		if _, err := ParseMark(bad); err == nil {
			t.Errorf("ParseMark(%q) succeeds", bad)
		}
	}
}

// The scanner finds a needle wherever chunks end, and nothing else.
func TestScannerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few letters make near misses likely.
		letters := rapid.SampledFrom([]byte("ab"))
		needle := rapid.SliceOfN(letters, 1, 6).Draw(t, "needle")
		text := rapid.SliceOfN(letters, 0, 60).Draw(t, "text")
		want := -1
		if i := bytes.Index(text, needle); i >= 0 {
			want = i + len(needle)
		}
		s, at := newScanner(needle), 0
		for got := -1; ; {
			if at == len(text) {
				if want >= 0 {
					t.Fatalf("%q not found in %q, which has it until %d", needle, text, want)
				}
				return
			}
			n := rapid.IntRange(1, len(text)-at).Draw(t, "chunk")
			if got = s.feed(text[at : at+n]); got >= 0 {
				if at+got != want {
					t.Fatalf("%q found until %d in %q, want %d", needle, at+got, text, want)
				}
				return
			}
			at += n
		}
	})
}

// Whatever was sent before, and however it was cut, the next session begins
// and carries what it should.
func TestResyncProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := socketpair(t)
		mark := NewMark()
		done := make(chan error, 1)
		go func() { done <- echo(NewListener(b, mark, 0)) }()
		// Leftovers on both sides, parts of marks and nonces among them.
		junk := rapid.SliceOfN(rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.IntRange(0, MarkSize), func(n int) []byte { return mark[:n] }),
			rapid.Map(rapid.IntRange(0, MarkSize), func(n int) []byte { m := mark.answer(); return m[:n] }),
		), 0, 4)
		b.Write(bytes.Join(junk.Draw(rt, "from the guest"), nil))
		a.Write(bytes.Join(junk.Draw(rt, "from the host"), nil))
		exchange(t, open(t, NewOpener(a, mark)), "payload")
		a.Close()
		if err := <-done; err != io.EOF {
			t.Errorf("listener ended with %v", err)
		}
		b.Close()
	})
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("mark"), []byte("xxmamarkyy"), 3)
	f.Add([]byte("aa"), []byte("abaa"), 1)
	f.Fuzz(func(t *testing.T, needle, text []byte, chunk int) {
		if len(needle) == 0 || chunk < 1 {
			return
		}
		s, got := newScanner(needle), -1
		for at := 0; at < len(text) && got < 0; at += chunk {
			if n := s.feed(text[at:min(at+chunk, len(text))]); n >= 0 {
				got = at + n
			}
		}
		want := -1
		if i := bytes.Index(text, needle); i >= 0 {
			want = i + len(needle)
		}
		if got != want {
			t.Fatalf("found until %d, want %d", got, want)
		}
	})
}

// A reader that wants little at a time is told of its session's end before it gets
// any of the mark, which HTTP/2 would take for a frame.
func TestMarkIsHandedToNobody(t *testing.T) {
	a, b := socketpair(t)
	mark := NewMark()
	l, o := NewListener(b, mark, 0), NewOpener(a, mark)
	got := make(chan string, 2)
	go func() {
		for range 2 {
			c, err := l.Accept()
			if err != nil {
				got <- err.Error()
				return
			}
			var all []byte
			for p := make([]byte, 9); ; {
				n, err := c.Read(p)
				all = append(all, p[:n]...)
				if err != nil {
					break
				}
			}
			c.Close()
			got <- string(all)
		}
	}()
	const text = "more than nine bytes"
	first := open(t, o)
	if _, err := io.WriteString(first, text); err != nil {
		t.Fatal(err)
	}
	second := open(t, o)
	if all := <-got; all != text && all != "" {
		t.Errorf("the first session read %q", all)
	}
	if _, err := io.WriteString(second, text); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if all := <-got; all != text {
		t.Errorf("the second session read %q", all)
	}
}
