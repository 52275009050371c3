// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

func TestRunEnds(t *testing.T) {
	c := newClient(t)
	for _, tt := range []struct {
		name   string
		exec   *sandbox.Exec
		code   int // -1: none
		signal string
		kind   error
		out    string
	}{
		{name: "success", exec: shell("echo hi"), out: "hi\n"},
		{name: "its own code", exec: shell("exit 7"), code: 7},
		{name: "its own signal", exec: shell("kill -SEGV $$"), code: -1, signal: "SIGSEGV"},
		{name: "looked up in its PATH", exec: &sandbox.Exec{Argv: []string{"env"}, Dir: "/", Env: []string{"PATH=/nowhere:/usr/bin", "A=b c"}}, out: "PATH=/nowhere:/usr/bin\nA=b c\n"},
		{name: "not in its PATH", exec: &sandbox.Exec{Argv: []string{"env"}, Dir: "/", Env: []string{"PATH=/nowhere"}}, code: 127, kind: sandbox.ErrNotFound},
		{name: "missing", exec: program("no-such-command"), code: 127, kind: sandbox.ErrNotFound},
		{name: "missing file", exec: program("/no/such/file"), code: 127, kind: sandbox.ErrNotFound},
		{name: "not executable", exec: program("/etc/hostname"), code: 126, kind: sandbox.ErrInvalid},
		{name: "a directory", exec: program("/etc"), code: 126, kind: sandbox.ErrInvalid},
		{name: "a long argument", exec: program("/bin/true", strings.Repeat("a", 200_000)), code: 126, kind: sandbox.ErrInvalid, out: "128 KiB"},
		{name: "no working directory", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/no/where"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "a closed working directory", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/root"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "a relative working directory", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "x"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "NUL in an argument", exec: program("/bin/echo", "a\x00b"), code: -1, kind: sandbox.ErrInvalid},
		{name: "nothing", exec: &sandbox.Exec{Dir: "/"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "not a variable", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/", Env: []string{"novalue"}}, code: -1, kind: sandbox.ErrInvalid},
		{name: "no stdin", exec: program("cat"), out: ""},
		{name: "python", exec: program("/usr/bin/python3", "-c", "print(2**100)"), out: "1267650600228229401496703205376\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := run(t, c, tt.exec)
			if !errors.Is(err, tt.kind) {
				t.Fatalf("error %v, want kind %v", err, tt.kind)
			}
			code := -1
			if got.Code != nil {
				code = *got.Code
			}
			if code != tt.code || got.Signal != tt.signal {
				t.Errorf("exit %d %q, want %d %q", code, got.Signal, tt.code, tt.signal)
			}
			if tt.kind == nil && got.out != tt.out {
				t.Errorf("stdout %q, want %q", got.out, tt.out)
			}
			if tt.kind != nil && !strings.Contains(err.Error(), tt.out) {
				t.Errorf("%v does not say %q", err, tt.out)
			}
		})
	}
}

// A program has what it was given and nothing of the agent's.
func TestProgramOwnsNothingElse(t *testing.T) {
	c := newClient(t)
	for what, want := range map[string][2]string{
		"identity":           {`id -u; id -g; id -G`, "1000\n1000\n1000"},
		"capabilities":       {`grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | grep -cv 0000000000000000`, "0"},
		"no_new_privs":       {`grep NoNewPrivs /proc/self/status | cut -f2`, "1"},
		"no groups":          {`grep Groups: /proc/self/status | tr -d ' \t'`, "Groups:"},
		"its three files":    {`exec python3 -c 'import os; print(sorted(int(f) for f in os.listdir("/proc/self/fd"))[:3], os.listdir("/proc/self/fd").__len__())'`, "[0, 1, 2] 4"}, // and the listing's own
		"a session":          {`[ "$(ps -o sid= -p $$ | tr -d ' ')" = $$ ] && echo yes`, "yes"},
		"default signals":    {`grep -E 'Sig(Ign|Blk)' /proc/self/status | grep -cv 0000000000000000`, "0"},
		"no core dumps":      {`ulimit -c`, "0"},
		"usual soft nofile":  {`ulimit -n`, "1024"},
		"its parent is init": {`echo $PPID`, "1"},
		"umask":              {`umask`, "0022"},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := run(t, c, shell(want[0]))
			if err != nil {
				t.Fatal(err)
			}
			if s := strings.TrimSpace(got.out); s != want[1] {
				t.Errorf("got %q, want %q\n%s", s, want[1], got.err)
			}
		})
	}
}

// Code of another user cannot get at the agent, and so not at its stream.
func TestAgentIsOutOfReach(t *testing.T) {
	c := newClient(t)
	const attempts = `
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*a):
    if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), "")
def pidfd_getfd():
    syscall(438, os.pidfd_open(1), 0, 0)
tries = {
  "kill": lambda: os.kill(1, signal.SIGKILL),
  "stop": lambda: os.kill(1, signal.SIGSTOP),
  "ptrace attach": lambda: syscall(101, 16, 1, 0, 0),
  "ptrace seize": lambda: syscall(101, 0x4206, 1, 0, 0),
  "memory": lambda: open("/proc/1/mem", "rb"),
  "environment": lambda: open("/proc/1/environ", "rb"),
  "files": lambda: os.listdir("/proc/1/fd"),
  "the stream": lambda: open("/proc/1/fd/3", "rb"),
  "executable": lambda: os.readlink("/proc/1/exe"),
  "root": lambda: os.listdir("/proc/1/root"),
  "pidfd_getfd": pidfd_getfd,
  "process_vm_readv": lambda: syscall(310, 1, 0, 0, 0, 0, 0) or libc.process_vm_readv(1, (ctypes.c_uint64*2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8), 1, (ctypes.c_uint64*2)(0x400000, 8), 1, 0) >= 0 or (_ for _ in ()).throw(PermissionError()),
  "priority": lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
  "limits": lambda: __import__("resource").prlimit(1, 7, (3, 3)),
}
for name, f in tries.items():
    try:
        f()
        print(name, "SUCCEEDS")
    except PermissionError:
        pass
    except OSError as e:
        print(name, "fails otherwise:", e)
`
	got, err := run(t, c, program("/usr/bin/python3", "-c", attempts))
	if err != nil {
		t.Fatal(err)
	}
	if got.out != "" || got.err != "" || *got.Code != 0 {
		t.Errorf("%s%s", got.out, got.err)
	}
}

// The mark is gone from where even root inside would look first.
func TestMarkIsWiped(t *testing.T) {
	c := newBox(t).dial(t, guest.Options{})
	if got := output(t, c, `tr -d '\0' </proc/1/environ | wc -c`); got != "0" {
		t.Errorf("the agent's environment shows %s bytes", got)
	}
	if got := output(t, c, `tr '\0' ' ' </proc/1/cmdline`); strings.Contains(strings.ToLower(got), "mark") {
		t.Errorf("the agent's arguments are %q", got)
	}
}

func TestLimitsHold(t *testing.T) {
	o := user()
	o.Limits = sandbox.Limits{OpenFiles: 64, Processes: 40, FileSize: 1 << 20, CPUTime: time.Second}
	c := newBox(t).dial(t, o)
	for what, want := range map[string][2]string{
		"open files": {`ulimit -Sn; ulimit -Hn`, "64\n64"},
		"processes":  {`ulimit -Su; ulimit -Hu`, "40\n40"},
		"file size":  {`trap '' XFSZ; head -c 2M /dev/zero >big 2>/dev/null; stat -c %s big`, "1048576"},
		"forks": {`exec python3 -c '
import os, signal
n = 0
try:
    while n < 60:
        if os.fork() == 0: signal.pause()
        n += 1
except BlockingIOError: pass
print(n < 60, n > 10, flush=True)
os.killpg(0, 9)'`, "True True"},
		"raising": {`ulimit -n 65 2>/dev/null || echo refused`, "refused"},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := run(t, c, shell(want[0]))
			if err != nil || strings.TrimSpace(got.out) != want[1] {
				t.Errorf("got %q, %v, want %q\n%s", got.out, err, want[1], got.err)
			}
		})
	}
	t.Run("cpu time", func(t *testing.T) {
		got, err := run(t, c, shell("while :; do :; done"))
		if err != nil || got.Signal != "SIGXCPU" {
			t.Errorf("a busy loop ends with %v %q, %v", got.Code, got.Signal, err)
		}
	})
}

func TestOrphansAreReaped(t *testing.T) {
	c := newClient(t)
	output(t, c, `for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.05' &) ; done`)
	gone(t, c, "sleep")
}

// What a program left behind neither holds its Run nor is hurt by its end.
func TestBackgroundOutlivesItsStarter(t *testing.T) {
	c := newClient(t)
	got := output(t, c, `(while sleep 0.01; do echo tick; done) & echo started`)
	if !strings.Contains(got, "started") { // after a tick, perhaps
		t.Errorf("got %q", got)
	}
	for range 3 {
		if n := output(t, c, `pgrep -fc '[w]hile sleep' || true`); n == "0" {
			t.Fatal("the background job died with its starter")
		}
	}
}

// forkBomb fills its limit and takes every place that one of it leaves.
const forkBomb = `
import os
first = os.getpid()
n = 0
while True:
    try:
        os.fork()
    except BlockingIOError:
        n += 1
        if n == 100 and os.getpid() == first: print("ready", flush=True)`

// runaway is never the process that was seen a moment ago.
const runaway = `
import os, time
for i in range(12):
    if os.fork() == 0:
        while True:
            if os.fork(): os._exit(0)
print("ready", flush=True)
while True: time.sleep(1)`

func TestContextEndsTheTree(t *testing.T) {
	c := newClient(t)
	scripts := map[string]string{
		"children":        `sleep 1000 & sleep 1000 & echo ready; wait`,
		"ignores signals": `trap '' TERM INT HUP; echo ready; while :; do sleep 1000; done`,
		"own group":       `set -m; sleep 1000 & echo ready; wait`,
		"own session":     `setsid sleep 1000 & echo ready; wait`,
		"growing":         "ulimit -u 60; exec python3 -c '" + forkBomb + "'",
	}
	for i := range 8 { // each is a chance to get away
		scripts[fmt.Sprint("running away ", i)] = "ulimit -u 4000; exec python3 -c '" + runaway + "'"
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			x := shell(script)
			x.Stdout = writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
			exit, err := c.Run(ctx, x)
			if !errors.Is(err, context.Canceled) || exit.Signal != "SIGKILL" || exit.Code != nil {
				t.Errorf("Run = %+v, %v", exit, err)
			}
			gone(t, c, "sleep", "python3")
		})
	}
}

// A host that vanishes takes its programs with it.
func TestSessionsEndEndsItsPrograms(t *testing.T) {
	b := newBox(t)
	c := b.dial(t, user())
	ready := make(chan struct{})
	x := shell(`echo ready; exec sleep 1000`)
	x.Stdout = writerFunc(func(p []byte) (int, error) { close(ready); return len(p), nil })
	ended := make(chan error, 1)
	go func() { _, err := c.Run(t.Context(), x); ended <- err }()
	<-ready
	c2 := b.dial(t, user()) // ends the session before
	gone(t, c2, "sleep")
	if err := <-ended; !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("the old Run ends with %v", err)
	}
}

func TestFailingWriterKills(t *testing.T) {
	c := newClient(t)
	x := program("yes")
	broken := errors.New("disk full")
	x.Stdout = writerFunc(func([]byte) (int, error) { return 0, broken })
	if _, err := c.Run(t.Context(), x); !errors.Is(err, broken) {
		t.Errorf("Run = %v", err)
	}
	gone(t, c, "yes")
}

func TestSignals(t *testing.T) {
	c := newClient(t)
	signals := make(chan syscall.Signal, 1)
	x := shell(`trap 'echo got; kill %1; exit 3' USR1; sleep 1000 & echo ready; wait`)
	x.Signals = signals
	var out bytes.Buffer
	x.Stdout = writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "ready") {
			signals <- syscall.SIGUSR1
		}
		return out.Write(p)
	})
	got, err := run(t, c, x)
	if err != nil || got.Code == nil || *got.Code != 3 || out.String() != "ready\ngot\n" {
		t.Errorf("%+v, %v, %q", got, err, out.String())
	}
}

// A program that does not read its input can still be signalled.
func TestSignalPassesFullInput(t *testing.T) {
	c := newClient(t)
	signals := make(chan syscall.Signal, 1)
	x := shell(`echo ready; exec sleep 1000`)
	x.Signals, x.Stdin = signals, io.LimitReader(zeros{}, 64<<20)
	x.Stdout = writerFunc(func(p []byte) (int, error) { signals <- syscall.SIGTERM; return len(p), nil })
	got, err := run(t, c, x)
	if err != nil || got.Signal != "SIGTERM" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Neither waits for a turn, which would come when the program has ended.
func TestSignalPassesTheQueue(t *testing.T) {
	o := user()
	o.Streams = 1
	c := newBox(t).dial(t, o)
	signals := make(chan syscall.Signal, 1)
	x := shell(`echo ready; exec sleep 1000`)
	x.Signals = signals
	x.Stdout = writerFunc(func(p []byte) (int, error) { signals <- syscall.SIGTERM; return len(p), nil })
	if got, err := run(t, c, x); err != nil || got.Signal != "SIGTERM" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Daemons that forked twice and left their session are out of a tree's sight,
// and not out of this.
func TestSignalAll(t *testing.T) {
	c := newClient(t)
	output(t, c, `for i in 1 2 3; do (setsid sh -c 'sleep 1000 & setsid sleep 1000 &' &); done >/dev/null 2>&1`)
	eventually(t, "they run", func() bool { return output(t, c, `pgrep -c sleep || true`) == "6" })
	if err := c.SignalAll(t.Context(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, c, "sleep")
	if err := c.Health(t.Context()); err != nil {
		t.Errorf("the agent is gone too: %v", err)
	}
}

func TestStartedIsCalledOnce(t *testing.T) {
	c := newClient(t)
	calls := 0
	x := shell("exit 4")
	x.Started = func() { calls++ }
	if got, err := run(t, c, x); err != nil || *got.Code != 4 || calls != 1 {
		t.Errorf("%+v, %v, %d calls", got, err, calls)
	}
	x = program("no-such")
	x.Started = func() { calls++ }
	if _, err := run(t, c, x); err == nil || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
}

func TestStdinStreams(t *testing.T) {
	c := newClient(t)
	x := program("cat")
	r, w := io.Pipe()
	x.Stdin = r
	lines := make(chan string)
	x.Stdout = writerFunc(func(p []byte) (int, error) { lines <- string(p); return len(p), nil })
	go func() {
		defer w.Close()
		for i := range 3 {
			fmt.Fprintf(w, "line %d\n", i)
			if got := <-lines; got != fmt.Sprintf("line %d\n", i) {
				t.Errorf("got %q", got)
			}
		}
	}()
	if got, err := run(t, c, x); err != nil || *got.Code != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Both ways at once, and nothing is lost.
func TestBulk(t *testing.T) {
	const size = 100 << 20
	c := newClient(t)
	x := program("cat")
	x.Stdin = io.LimitReader(zeros{}, size)
	var n counter
	x.Stdout = &n
	start := time.Now()
	if got, err := run(t, c, x); err != nil || *got.Code != 0 || n != size {
		t.Errorf("%d of %d bytes, %+v, %v", n, size, got, err)
	}
	t.Logf("100 MiB through cat: %v", time.Since(start))
}

func TestManyAtOnce(t *testing.T) {
	c := newClient(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			got, err := run(t, c, shell(fmt.Sprintf("cat; echo %d; exit %d", i, i)))
			if err != nil || *got.Code != i || got.out != fmt.Sprintf("%d\n", i) {
				t.Errorf("program %d: %+v, %v", i, got, err)
			}
		})
	}
	all.Wait()
}

// A reader that stops reading holds back its own program and no other's.
func TestBackpressure(t *testing.T) {
	c := newClient(t)
	var stuck sync.WaitGroup
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	full := make(chan struct{}, 8)
	for range 8 {
		x := program("yes")
		var once sync.Once
		x.Stdout = writerFunc(func(p []byte) (int, error) {
			once.Do(func() { full <- struct{}{} })
			<-release
			return len(p), nil
		})
		stuck.Go(func() { c.Run(ctx, x) })
	}
	for range 8 {
		<-full
	}
	if got := output(t, c, "echo still here"); got != "still here" {
		t.Errorf("got %q", got)
	}
	cancel()
	close(release)
	stuck.Wait()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// A program that writes byte by byte is a nuisance, not a flood.
func TestChattyProgramIsNoFlood(t *testing.T) {
	c := newClient(t)
	const size = 300_000
	x := program("/usr/bin/python3", "-c", fmt.Sprintf(`
import os
for i in range(%d): os.write(1, b"x")`, size))
	var n counter
	x.Stdout = &n
	if got, err := run(t, c, x); err != nil || *got.Code != 0 || n != size {
		t.Errorf("%d of %d bytes, %+v, %v", n, size, got, err)
	}
}
