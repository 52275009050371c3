// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

var signalTests = []test{
	{name: "are delivered", run: testSignalDelivered},
	{name: "end what does not catch them", run: testSignalDefault},
	{name: "reach the whole group", run: testSignalGroup},
}

// watcher collects output and tells when a text has come.
type watcher struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	news chan struct{}
}

func newWatcher() *watcher { return &watcher{news: make(chan struct{}, 1)} }

func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(b)
	select {
	case w.news <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// wait waits until text has come; false when the test is over before that.
func (w *watcher) wait(t *testing.T, text string) bool {
	deadline := time.After(runLimit - 15*time.Second)
	for !strings.Contains(w.String(), text) {
		select {
		case <-w.news:
		case <-deadline:
			t.Errorf("never came: %q; came: %q", text, w.String())
			return false
		case <-t.Context().Done():
			return false
		}
	}
	return true
}

// signalled runs a script and sends sig when it says "ready".
func signalled(t *testing.T, w *fixture, r road, sig syscall.Signal, script string) (outcome, string) {
	t.Helper()
	// Not dash: it loses a signal that arrives while it starts a program.
	x := w.exec("bash", "-c", script)
	out, signals := newWatcher(), make(chan syscall.Signal)
	x.Stdout, x.Signals = out, signals
	go func() {
		if out.wait(t, "ready") {
			select {
			case signals <- sig:
			case <-t.Context().Done():
			}
		}
	}()
	return w.start(t, timeout(t), r, x), out.String()
}

// A shell that starts no program: bash before 5.3 may call kill(2) on itself for
// ever when SIGINT comes as it begins to wait for a child, between the system call
// that sets wait_sigint_handler and the line that keeps the old one. Where system
// calls are slow, that is one signal of a hundred.
func testSignalDelivered(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGHUP} {
		o, out := signalled(t, w, r, sig, fmt.Sprintf(`trap 'echo caught; exit 5' %d; echo ready; while :; do :; done`, sig))
		o.exited(t, 5)
		if !strings.Contains(out, "caught") {
			t.Errorf("%v: %q", sig, out)
		}
	}
}

func testSignalDefault(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	for sig, name := range map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT", syscall.SIGKILL: "SIGKILL"} {
		o, _ := signalled(t, w, r, sig, "echo ready; exec sleep 600")
		if o.Signal != name || o.ExitCode != nil || o.Status != sandbox.StatusError || o.Resource != "" {
			t.Errorf("%s: %s", name, o.describe())
		}
	}
}

// A shell waits for its child, so the child must get the signal too.
func testSignalGroup(t *testing.T, s *suite, r road) {
	o, out := signalled(t, s.fixture(t), r, syscall.SIGTERM, `trap 'echo parent' TERM
bash -c 'trap "echo child; exit 0" TERM; echo ready; while :; do sleep 0.05; done'
echo end; exit 4`)
	o.exited(t, 4)
	for _, word := range []string{"parent", "child", "end"} {
		if !strings.Contains(out, word) {
			t.Errorf("%q is missing in %q", word, out)
		}
	}
}

var terminalTests = []test{
	{name: "size and its changes", run: testTerminalSize, only: living},
	{name: "is a terminal", run: testIsTerminal, only: living},
	{name: "Ctrl-C, job control", run: testJobControl, only: living},
}

// onTerminal runs a shell on a PTY and lets play talk to it.
func onTerminal(t *testing.T, s *suite, r road, resize <-chan sandbox.WindowSize, argv []string, play func(out *watcher, in io.Writer)) (outcome, string) {
	t.Helper()
	if !s.caps.Terminal {
		s.lacks(t, "no terminal")
	}
	w := s.fixture(t)
	w.env = append(w.env, "TERM=dumb", `PS1=p\#$ `)
	x := w.exec(argv...)
	stdin, in := pipe(t)
	out := newWatcher()
	x.Stdin, x.Stdout = stdin, out
	x.Terminal = &sandbox.Terminal{Size: sandbox.WindowSize{Rows: 30, Cols: 90}, Resize: resize}
	go play(out, in)
	return w.start(t, timeout(t), r, x), out.String()
}

func testTerminalSize(t *testing.T, s *suite, r road) {
	resize := make(chan sandbox.WindowSize)
	o, out := onTerminal(t, s, r, resize, []string{"bash", "-c", `trap 'stty size; exit 0' WINCH; stty size; echo ready; while :; do :; done`},
		func(out *watcher, in io.Writer) {
			if out.wait(t, "ready") {
				select {
				case resize <- sandbox.WindowSize{Rows: 50, Cols: 132}:
				case <-t.Context().Done():
				}
			}
		})
	o.exited(t, 0)
	if !strings.Contains(out, "30 90") || !strings.Contains(out, "50 132") {
		t.Errorf("%q", out)
	}
}

func testIsTerminal(t *testing.T, s *suite, r road) {
	o, out := onTerminal(t, s, r, nil, []string{"sh", "-c", `test -t 0 && test -t 1 && test -t 2 && tty && echo to-stderr >&2; read -r x; echo "[$x]"; echo hi > /dev/tty`},
		func(out *watcher, in io.Writer) {
			if out.wait(t, "to-stderr") {
				io.WriteString(in, "typed\r")
			}
		})
	o.exited(t, 0)
	for _, want := range []string{"/dev/pts/", "to-stderr", "[typed]", "hi"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %q", want, out)
		}
	}
}

// testJobControl: Ctrl-C ends the program in front and not the shell; Ctrl-Z
// stops it. The program in front says itself that it is there: before that a
// Ctrl-C would be the shell's own. It waits itself, too: a Ctrl-Z that came while
// it executed another program was lost once, on gVisor.
func testJobControl(t *testing.T, s *suite, r road) {
	o, out := onTerminal(t, s, r, nil, []string{"bash", "--norc", "--noprofile", "-i"}, func(out *watcher, in io.Writer) {
		for _, step := range []struct{ await, send string }{
			{"p1$ ", "sh -c 'echo slee''ping; read -r x'\r"},
			{"sleeping\r\n", "\x03"},
			{"p2$ ", "echo alive=$?\r"},
			{"p3$ ", "sh -c 'echo run''ning; read -r x'\r"},
			{"running\r\n", "\x1a"},
			{"Stopped", "jobs -r; kill -9 %1; wait; echo jo''bs\r"},
			// Twice: a shell that has not reaped its stopped job yet warns first.
			{"jobs\r\n", "exit 6; exit 6\r"},
		} {
			if !out.wait(t, step.await) {
				return
			}
			io.WriteString(in, step.send)
		}
	})
	o.exited(t, 6)
	if !strings.Contains(out, "alive=130") {
		t.Errorf("Ctrl-C did not end what was in front: %q", out)
	}
	if strings.Contains(out, "no job control") || strings.Contains(out, "cannot set terminal process group") {
		t.Errorf("%q", out)
	}
}
