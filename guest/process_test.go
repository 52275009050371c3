// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// bash is a command that runs a script.
func bash(script string) guest.Command {
	return guest.Command{Path: "/bin/bash", Args: []string{"-c", script}}
}

func start(t testing.TB, c *guest.Client, cmd guest.Command) *guest.Process {
	t.Helper()
	p, err := c.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// hear reads until what was written holds a text, or, for an empty one, until
// the end.
func hear(t testing.TB, p *guest.Process, until string) string {
	t.Helper()
	var all strings.Builder
	for {
		o, err := p.Next()
		if err == io.EOF && until == "" {
			return all.String()
		}
		if err != nil {
			t.Fatalf("after %q: %v", &all, err)
		}
		fmt.Fprintf(&all, "%s", o.Data)
		if until != "" && strings.Contains(all.String(), until) {
			return all.String()
		}
	}
}

func end(t testing.TB, p *guest.Process) sandbox.ProcessEnd {
	t.Helper()
	e, over := p.End()
	if !over {
		t.Fatal("it has not ended")
	}
	return e
}

func TestStart(t *testing.T) {
	c := newBox(t, "-sudo").dial(t, user())
	if _, err := c.Resume(t.Context(), guest.Resume{Env: map[string]string{"A": "sandbox", "B": "sandbox", "LOGNAME": "other"}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		as   string
		cmd  guest.Command
		out  string
		end  sandbox.ProcessEnd
	}{
		{name: "success", cmd: bash("echo hi"), out: "hi\n"},
		{name: "its own code", cmd: bash("exit 7"), end: sandbox.ProcessEnd{Code: 7}},
		{name: "its own signal", cmd: bash("kill -SEGV $$"), end: sandbox.ProcessEnd{Code: -1, Signal: syscall.SIGSEGV}},
		{name: "environment", cmd: guest.Command{Path: "env", Env: map[string]string{"B": "own", "C": "own"}},
			out: "A=sandbox\nB=own\nC=own\nHOME=/home/user\nLOGNAME=other\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nUSER=user\n"},
		{name: "its own PATH", cmd: guest.Command{Path: "/bin/sh", Args: []string{"-c", "echo $PATH"}, Env: map[string]string{"PATH": "/x"}}, out: "/x\n"},
		{name: "home", cmd: bash("pwd; id -u; id -g; id -G"), out: "/home/user\n1000\n1000\n1000\n"},
		{name: "below home", cmd: guest.Command{Path: "pwd", Dir: "~/"}, out: "/home/user\n"},
		{name: "a directory", cmd: guest.Command{Path: "pwd", Dir: "/tmp"}, out: "/tmp\n"},
		{name: "no input", cmd: bash("cat; readlink /proc/self/fd/0"), out: "/dev/null\n"},
		{name: "both streams", cmd: bash("echo out; echo err >&2; exit 1"), out: "out\n", end: sandbox.ProcessEnd{Code: 1}},
		{name: "root", as: "root", cmd: bash("id -u; echo $HOME; pwd; grep NoNewPrivs /proc/self/status"), out: "0\n/root\n/root\nNoNewPrivs:\t0\n"},
		{name: "somebody else", as: "nobody", cmd: guest.Command{Path: "id", Args: []string{"-u"}, Dir: "/"}, out: "65534\n"},
		{name: "time over", cmd: guest.Command{Path: "sleep", Args: []string{"1000"}, Timeout: 50 * time.Millisecond}, end: sandbox.ProcessEnd{Code: -1, Signal: syscall.SIGKILL, Expired: true}},
		{name: "what it leaves behind keeps its output open", cmd: bash("{ while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo late; } & echo soon"), out: "soon\nlate\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, c.As(tt.as), tt.cmd)
			var out strings.Builder
			for {
				o, err := p.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if o.Stream == sandbox.StreamStdout {
					out.Write(o.Data)
				} else if string(o.Data) != "err\n" {
					t.Errorf("it writes %q to %d", o.Data, o.Stream)
				}
			}
			if out.String() != tt.out {
				t.Errorf("it writes %q, want %q", &out, tt.out)
			}
			if d := cmp.Diff(tt.end, end(t, p)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	c := newClient(t)
	for _, tt := range []struct {
		name string
		as   string
		cmd  guest.Command
		kind error
		code string
		says string
	}{
		{name: "no command", cmd: guest.Command{Path: "no-such"}, kind: sandbox.ErrInvalid, code: "invalid_argument", says: "no-such: command not found"},
		{name: "nothing", kind: sandbox.ErrInvalid, code: "invalid_argument", says: "there is no program to start"},
		{name: "no directory", cmd: guest.Command{Path: "true", Dir: "/no/where"}, kind: sandbox.ErrInvalid, code: "invalid_argument", says: "cwd '/no/where' does not exist"},
		{name: "a closed directory", cmd: guest.Command{Path: "true", Dir: "/root"}, kind: sandbox.ErrInvalid, code: "invalid_argument", says: "permission denied"},
		{name: "another's home", cmd: guest.Command{Path: "true", Dir: "~root"}, kind: sandbox.ErrInvalid, code: "invalid_argument", says: "cannot expand user-specific home dir"},
		{name: "nobody", as: "no-such-user", cmd: guest.Command{Path: "true"}, kind: sandbox.ErrInvalid, code: "unauthenticated", says: "invalid username: 'no-such-user'"},
		{name: "root", as: "root", cmd: guest.Command{Path: "true"}, kind: sandbox.ErrInvalid, code: "permission_denied", says: "cannot be root"},
		{name: "root by another name", as: "toor", cmd: guest.Command{Path: "true"}, kind: sandbox.ErrInvalid, code: "permission_denied", says: "cannot be root"},
		{name: "a bad variable", cmd: guest.Command{Path: "true", Env: map[string]string{"": "x"}}, kind: sandbox.ErrInvalid, code: "invalid_argument"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := c.As(tt.as).Start(t.Context(), tt.cmd)
			if err == nil {
				p.Close()
				t.Fatal("it starts")
			}
			var r *sandbox.AgentError
			if !errors.Is(err, tt.kind) || !errors.As(err, &r) || r.Code != tt.code || !strings.Contains(r.Message, tt.says) {
				t.Errorf("it is refused with %v, %+v", err, r)
			}
		})
	}
}

// A process does not belong to its listeners.
func TestConnect(t *testing.T) {
	b := newBox(t)
	c := b.dial(t, user())
	cmd := bash("while read x; do echo got $x; done; exit 4")
	cmd.Tag, cmd.Stdin = "mine", true
	first := start(t, c, cmd)
	me := sandbox.ProcessSelector{PID: first.PID}
	say := func(c *guest.Client, s string) {
		t.Helper()
		if err := c.Input(t.Context(), me, sandbox.StreamStdout, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	say(c, "one\n")
	hear(t, first, "got one\n")

	second, err := c.Connect(t.Context(), sandbox.ProcessSelector{Tag: "mine"})
	if err != nil || second.PID != first.PID {
		t.Fatalf("connect: %+v, %v", second, err)
	}
	say(c, "two\n")
	for _, p := range []*guest.Process{first, second} {
		if got := hear(t, p, "got two\n"); got != "got two\n" {
			t.Errorf("a listener hears %q", got)
		}
	}

	// Without a listener output is thrown away, and the process goes on.
	first.Close()
	second.Close()
	say(c, "three\n")
	all, err := c.Processes(t.Context())
	want := []sandbox.ProcessInfo{{PID: me.PID, Tag: "mine", Argv: append([]string{cmd.Path}, cmd.Args...)}}
	if d := cmp.Diff(want, all); err != nil || d != "" {
		t.Error(d, err)
	}

	// Another session finds it again.
	c = b.dial(t, user())
	third, err := c.Connect(t.Context(), me)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	say(c, "four\n")
	if got := hear(t, third, "got four\n"); strings.Contains(got, "two") {
		t.Errorf("a late listener hears %q", got)
	}
	if err := c.CloseInput(t.Context(), me); err != nil {
		t.Fatal(err)
	}
	hear(t, third, "")
	if e := end(t, third); e.Code != 4 {
		t.Errorf("it ends with %+v", e)
	}

	// Its end can be learned a little later, too.
	for _, s := range []sandbox.ProcessSelector{me, {Tag: "mine"}} {
		late, err := c.Connect(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if out := hear(t, late, ""); out != "" || end(t, late).Code != 4 {
			t.Errorf("%v: after its end it writes %q, %+v", s, out, end(t, late))
		}
		late.Close()
	}
	for _, s := range []sandbox.ProcessSelector{{PID: 99999}, {Tag: "none"}} {
		if _, err := c.Connect(t.Context(), s); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%v: %v", s, err)
		}
	}
	if err := c.Signal(t.Context(), me, syscall.SIGKILL); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("signal after the end: %v", err)
	}
	// A restart under the same tag hides the end of the one before.
	again := start(t, c, guest.Command{Path: "cat", Tag: "mine", Stdin: true})
	p, err := c.Connect(t.Context(), sandbox.ProcessSelector{Tag: "mine"})
	if err != nil || p.PID != again.PID {
		t.Fatalf("by its tag is found %+v, %v", p, err)
	}
	p.Close()
}

// A listener who does not read holds the process back; one who goes lets it go.
func TestSlowListener(t *testing.T) {
	c := newClient(t)
	p := start(t, c, bash("yes | head -c 8000000; touch done; sleep 1000"))
	p.Close()
	eventually(t, "it writes on without a listener", func() bool {
		_, err := c.Stat(t.Context(), "/home/user/done")
		return err == nil
	})
	if err := c.Signal(t.Context(), sandbox.ProcessSelector{PID: p.PID}, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	eventually(t, "it is gone", func() bool {
		all, err := c.Processes(t.Context())
		return err == nil && len(all) == 0
	})
}

func TestSignalAndOutputLeftOpen(t *testing.T) {
	c := newClient(t)
	// What it leaves is in another group, and holds its output.
	p := start(t, c, bash("setsid sleep 1000 & echo $!; wait"))
	hear(t, p, "\n")
	if err := c.Signal(t.Context(), sandbox.ProcessSelector{PID: p.PID}, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hear(t, p, "")
	if e := end(t, p); e.Signal != syscall.SIGKILL {
		t.Errorf("it ends with %+v", e)
	}
	// The same when the program ended by itself before.
	p = start(t, c, bash("setsid sleep 1000 & exec true"))
	eventually(t, "only its output is open", func() bool {
		o, err := run(t, c, shell(fmt.Sprintf("test -d /proc/%d", p.PID)))
		return err == nil && *o.Code == 1
	})
	if err := c.Signal(t.Context(), sandbox.ProcessSelector{PID: p.PID}, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hear(t, p, "")
	if e := end(t, p); e.Code != 0 || e.Signal != 0 {
		t.Errorf("it ends with %+v", e)
	}
}

func TestTerminalOfProcess(t *testing.T) {
	c := newClient(t)
	cmd := guest.Command{Path: "/bin/bash", Args: []string{"-i"}, Env: map[string]string{"PS1": "$ ", "TERM": "xterm"}, Terminal: &sandbox.WindowSize{Rows: 30, Cols: 90}}
	p := start(t, c, cmd)
	me := sandbox.ProcessSelector{PID: p.PID}
	say := func(s string) {
		t.Helper()
		if err := c.Input(t.Context(), me, sandbox.StreamTerminal, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	say("stty size\n")
	hear(t, p, "30 90\r\n")
	if err := c.Resize(t.Context(), me, sandbox.WindowSize{Rows: 10, Cols: 50}); err != nil {
		t.Fatal(err)
	}
	say("stty size\n")
	hear(t, p, "10 50\r\n")
	if err := c.CloseInput(t.Context(), me); err == nil || !strings.Contains(err.Error(), "cannot close stdin for PTY process") {
		t.Errorf("close: %v", err)
	}
	if err := c.Input(t.Context(), me, sandbox.StreamStdout, []byte("x")); err == nil || !strings.Contains(err.Error(), "written to the pty, not the stdin") {
		t.Errorf("stdin: %v", err)
	}
	say("exit 5\n")
	hear(t, p, "")
	if e := end(t, p); e.Code != 5 {
		t.Errorf("it ends with %+v", e)
	}
}

// Input that is not read waits no longer than its request, and nothing behind
// it is stuck.
func TestInputThatNobodyReads(t *testing.T) {
	c := newClient(t)
	p := start(t, c, guest.Command{Path: "sleep", Args: []string{"1000"}, Stdin: true})
	me := sandbox.ProcessSelector{PID: p.PID}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.Input(ctx, me, sandbox.StreamStdout, make([]byte, 300_000)); err == nil {
		t.Error("it takes all")
	}
	if err := c.CloseInput(t.Context(), me); err != nil {
		t.Error(err)
	}
	if err := c.Input(t.Context(), me, sandbox.StreamStdout, []byte("x")); err == nil || !strings.Contains(err.Error(), "stdin not enabled or closed") {
		t.Errorf("input after its end: %v", err)
	}
	if err := c.CloseInput(t.Context(), me); err != nil {
		t.Errorf("twice: %v", err)
	}
	q := start(t, c, guest.Command{Path: "sleep", Args: []string{"1000"}})
	if err := c.Input(t.Context(), sandbox.ProcessSelector{PID: q.PID}, sandbox.StreamStdout, []byte("x")); err == nil || !strings.Contains(err.Error(), "stdin not enabled or closed") {
		t.Errorf("input of one without: %v", err)
	}
}

// Streams that stay do not keep calls from being made.
func TestListenersAreBounded(t *testing.T) {
	o := user()
	o.Listeners = 3
	c := newBox(t).dial(t, o)
	for range 3 {
		start(t, c, guest.Command{Path: "sleep", Args: []string{"1000"}})
	}
	if _, err := c.Start(t.Context(), guest.Command{Path: "true"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("the fourth: %v", err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Error(err)
	}
}
