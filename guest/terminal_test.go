// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// terminal is a program with a PTY and a person at the keyboard.
type terminal struct {
	t      *testing.T
	keys   *io.PipeWriter
	resize chan sandbox.WindowSize
	done   chan outcome

	mu      sync.Mutex
	changed *sync.Cond
	screen  strings.Builder
}

func newTerminal(t *testing.T, argv ...string) *terminal {
	c := newClient(t)
	r, w := io.Pipe()
	term := &terminal{t: t, keys: w, resize: make(chan sandbox.WindowSize), done: make(chan outcome, 1)}
	term.changed = sync.NewCond(&term.mu)
	x := program(argv...)
	x.Env = append(x.Env, "PS1=$ ", "TERM=dumb")
	x.Stdin, x.Stdout = r, term
	x.Terminal = &sandbox.Terminal{Size: sandbox.WindowSize{Rows: 24, Cols: 80}, Resize: term.resize}
	go func() {
		got, err := run(t, c, x)
		if err != nil {
			t.Error(err)
		}
		term.done <- got
	}()
	t.Cleanup(func() { w.Close() })
	return term
}

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
	return s.screen.Write(p)
}

func (s *terminal) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.screen.String(), text)
}

// types sends keys and waits until the screen shows text.
func (s *terminal) types(keys, text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.keys, keys); err != nil {
		s.t.Fatal(err)
	}
	s.waits(text)
}

// waits returns when the screen shows text. It does not spin: the shell at the
// other end needs the processor.
func (s *terminal) waits(text string) {
	s.t.Helper()
	late := false
	defer time.AfterFunc(time.Minute, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.changed.Broadcast()
	}).Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.screen.String(), text) {
		if late {
			s.t.Fatalf("the terminal does not show %q but %q", text, s.screen.String())
		}
		s.changed.Wait()
	}
}

func TestTerminal(t *testing.T) {
	s := newTerminal(t, "bash", "--norc", "--noprofile", "-i")
	s.types("stty size\n", "24 80")
	s.types("tty; stat -c %u $(tty)\n", "1000")
	s.resize <- sandbox.WindowSize{Rows: 40, Cols: 132}
	s.types("until [ \"$(stty size)\" = '40 132' ]; do :; done; stty size\n", "40 132")
	// Job control: stop, list, go on in the background, bring back, interrupt.
	// The job asks for a line: that it gets one after fg shows that it has the
	// terminal. bash says what it brings back before it hands the terminal over,
	// and a ^C in between is bash's own. In the background it may not ask, and is stopped:
	// what stops it must have come before it is brought back, or stops it then.
	s.types("sh -c 'echo up; read x; echo got-$x; exec sleep 1000'\n", "\nup")
	s.types("\x1a", "Stopped")
	s.types("bg\n", "1000' &")
	s.types("until jobs -s | grep -q sleep; do :; done; echo $((6*6))\n", "\n36")
	s.types("fg\n", "$ fg\r\nsh -c")
	s.types("line\n", "\ngot-line")
	s.types("\x03", "^C\r\n$ ")
	s.types("echo code=$?\n", "code=130")
	s.types("echo $((6*7))\n", "42")
	if _, err := io.WriteString(s.keys, "exit 5\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-s.done; got.Code == nil || *got.Code != 5 {
		t.Errorf("exit %+v", got.Exit)
	}
}

// A program that closes its terminal goes on, and may open it again.
func TestTerminalWithoutAHolder(t *testing.T) {
	s := newTerminal(t, "/bin/bash", "-c", "exec <&- >&- 2>&-; /bin/sleep 0.2; echo again >/dev/tty; exit 3")
	if got := <-s.done; got.Code == nil || *got.Code != 3 || !s.shows("again") {
		t.Errorf("exit %+v", got.Exit)
	}
}

// The end of the keyboard is ^D.
func TestTerminalEndOfInput(t *testing.T) {
	s := newTerminal(t, "cat")
	s.types("hello\n", "hello\r\nhello")
	s.keys.Close()
	if got := <-s.done; got.Code == nil || *got.Code != 0 {
		t.Errorf("exit %+v", got.Exit)
	}
}
