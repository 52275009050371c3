// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// prepare makes a sandbox that waits.
func prepare(t *testing.T, spec *sandbox.Spec) sandbox.Prepared {
	t.Helper()
	own := *spec
	own.ID = "sbx_" + rand.Text()
	p, err := process.New(process.Options{}).Prepare(t.Context(), &own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Destroy(context.Background()) })
	return p
}

// A sandbox may wait for hours: nothing that others have open stays open for it.
func TestWaitingHoldsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := prepare(t, fixture(t))
	w.Close()
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a pipe whose only end was closed: %v", err)
	}
	if open, want := opened(t), []string{"anon_inode", "pipe"}; !slices.Equal(open, want) {
		t.Errorf("children have open %q, want %q", open, want)
	}
	var out strings.Builder
	if _, err := p.Run(t.Context(), &sandbox.Exec{Argv: []string{"/bin/cat"}, Dir: "/tmp", Stdin: strings.NewReader("in"), Stdout: &out}); err != nil || out.String() != "in" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// opened is what our children have open, by kind. Theirs: the streams, the
// Landlock ruleset, and what the program's last steps need.
func opened(t *testing.T) (kinds []string) {
	t.Helper()
	for _, pid := range children(t) {
		for _, f := range files(t, pid) {
			kinds = append(kinds, strings.Fields(f)[1])
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// What is killed while it waits is not run in, and leaves nothing.
func TestKilledWhileItWaits(t *testing.T) {
	p := prepare(t, fixture(t))
	for _, pid := range children(t) {
		if strings.HasPrefix(read(t, pid, "cmdline"), "init") {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-p.Ended()
	res, err := p.Run(t.Context(), &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/tmp"})
	if !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("%+v, %v", res, err)
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

func TestPreparedRunsOnce(t *testing.T) {
	p := prepare(t, fixture(t))
	for _, bad := range []*sandbox.Exec{{Argv: []string{"/bin/true"}, Dir: "tmp"}, {Argv: []string{"a\x00b"}, Dir: "/"}, {Dir: "/"}, {Argv: []string{"/bin/true"}, Dir: "/", Terminal: &sandbox.Terminal{}}} {
		if res, err := p.Run(t.Context(), bad); err == nil {
			t.Errorf("%+v: %+v", bad, res)
		}
	}
	// What was refused before anything ran has not used it up.
	x := &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/tmp"}
	if res, err := p.Run(t.Context(), x); err != nil || res.Status != sandbox.StatusSuccess {
		t.Fatal(res, err)
	}
	if res, err := p.Run(t.Context(), x); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a second time: %+v, %v", res, err)
	}
	p = prepare(t, fixture(t))
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Run(t.Context(), x); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("destroyed: %+v, %v", res, err)
	}
}

// What runs is killed, and its Run has its say.
func TestDestroyedWhileItRuns(t *testing.T) {
	p := prepare(t, fixture(t))
	up := onWrite(func() {
		go p.Destroy(context.Background())
	})
	res, err := p.Run(t.Context(), &sandbox.Exec{Argv: []string{"/bin/sh", "-c", "echo up; sleep 1000"}, Dir: "/tmp", Stdout: up})
	if err != nil || res.Signal != "SIGKILL" {
		t.Error(res, err)
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

// ownerEnv makes TestWaitingDiesWithItsOwner the owner.
const ownerEnv = "CAISSON_TEST_OWNER_OF_A_WAITING_SANDBOX"

// SIGKILL to caisson, and what waits dies, too.
func TestWaitingDiesWithItsOwner(t *testing.T) {
	if os.Getenv(ownerEnv) != "" {
		spec := fixture(t)
		p := prepare(t, spec)
		fmt.Println("id", p.ID(), spec.StateDir, children(t))
		select {}
	}
	owner := exec.Command(self(t), "-test.run=^TestWaitingDiesWithItsOwner$")
	owner.Env = append(os.Environ(), ownerEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var id, state string
	var pids [3]int
	if _, err := fmt.Fscanf(out, "id %s %s [%d %d %d]\n", &id, &state, &pids[0], &pids[1], &pids[2]); err != nil {
		t.Error(err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = owner.Wait()
	for end := time.After(time.Minute); ; {
		alive := slices.ContainsFunc(pids[:], func(pid int) bool { return pid == 0 || unix.Kill(pid, 0) == nil })
		if !alive {
			break
		}
		select {
		case <-end:
			t.Fatalf("of %v some live on", pids)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := process.New(process.Options{}).Sweep(t.Context(), id, state); err != nil {
		t.Error(err)
	}
	noGroups(t, id)
}

// As many as there are goroutines, beside a busy garbage collector: stacks and
// memory of ours are in a waiting child's hands for long.
func TestManyWait(t *testing.T) {
	spec := fixture(t)
	d := process.New(process.Options{})
	var runs sync.WaitGroup
	for range 4 {
		runs.Go(func() {
			var waiting []sandbox.Prepared
			for range 8 {
				own := *spec
				own.ID = "sbx_" + rand.Text()
				p, err := d.Prepare(t.Context(), &own)
				if err != nil {
					t.Error(err)
					return
				}
				defer p.Destroy(t.Context())
				waiting = append(waiting, p)
			}
			_ = strings.Repeat("garbage", 1<<20)
			runtime.GC()
			for i, p := range waiting {
				if i%4 == 3 {
					continue // destroyed as it is
				}
				var out strings.Builder
				res, err := p.Run(t.Context(), &sandbox.Exec{Argv: []string{"/bin/echo", p.ID()}, Dir: "/tmp", Stdout: &out})
				if err != nil || res.Status != sandbox.StatusSuccess || out.String() != p.ID()+"\n" {
					t.Errorf("%+v, %v, %q", res, err, out.String())
				}
			}
		})
	}
	runs.Wait()
	if left := children(t); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

// leave and find are what one run leaves behind and the next one looks for.
const leave = `
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
for path in ("/tmp/trace", "/home/user/trace", "/dev/shm/trace"):
    open(path, "w").write("x")
for sort in ("shmget", "semget", "msgget"):
    a = {"shmget": (77, 4096, 0o1600), "semget": (77, 1, 0o1600), "msgget": (77, 0o1600)}[sort]
    assert getattr(libc, sort)(*a) >= 0, sort
pid = os.fork()
if pid == 0:
    os.setsid()
    abstract = socket.socket(socket.AF_UNIX); abstract.bind("\0trace"); abstract.listen()
    tcp = socket.socket(); tcp.bind(("127.0.0.1", 7777)); tcp.listen()
    ballast = bytearray(64 << 20)
    for i in range(0, len(ballast), 4096): ballast[i] = 1
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2): os.dup2(null, fd)
    open("/tmp/up", "w")
    import time
    while True: time.sleep(1)
while not os.path.exists("/tmp/up"): pass
`

const find = `
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
found = []
for path in ("/tmp/trace", "/home/user/trace", "/dev/shm/trace"):
    if os.path.exists(path): found.append(path)
for name, a in (("shmget", (77, 0, 0)), ("semget", (77, 0, 0)), ("msgget", (77, 0))):
    if getattr(libc, name)(*a) >= 0: found.append(name)
for family, address in ((socket.AF_UNIX, "\0trace"), (socket.AF_INET, ("127.0.0.1", 7777))):
    s = socket.socket(family)
    s.settimeout(5)
    try:
        s.connect(address)
        found.append("socket %d" % family)
    except OSError: pass
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) not in (1, 2, os.getpid(), os.getppid()): found.append("process")
for e in os.environ:
    if e == "TRACE": found.append("environment")
if os.getpid() > 2: found.append("process number")
print(json.dumps(sorted(set(found))))
`

// everything is what find can find. The agent of a living sandbox passes no
// environment on from one program to the next.
var everything = []string{
	"/dev/shm/trace", "/home/user/trace", "/tmp/trace", "msgget", "process", "process number", "semget", "shmget", "socket 1", "socket 2",
}

// Two sandboxes are made of one spec and wait side by side; what runs in the
// first is not seen in the second, nor in one that is made afterwards.
func TestNothingIsPassedOn(t *testing.T) {
	spec := fixture(t)
	python := func(script string) *sandbox.Exec {
		return &sandbox.Exec{Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", script}, Dir: "/tmp", Env: []string{"PATH=/usr/bin"}}
	}
	first, second := prepare(t, spec), prepare(t, spec)
	x := python(leave)
	x.Env = append(x.Env, "TRACE=1")
	before, err := first.Run(t.Context(), x)
	if err != nil || before.Status != sandbox.StatusSuccess {
		t.Fatal(before, err)
	}
	for _, p := range []sandbox.Prepared{second, prepare(t, spec)} {
		var out strings.Builder
		x := python(find)
		x.Stdout = &out
		res, err := p.Run(t.Context(), x)
		if err != nil || res.Status != sandbox.StatusSuccess {
			t.Fatal(res, err)
		}
		if out.String() != "[]\n" {
			t.Errorf("found of another run: %s", out.String())
		}
		if os.Geteuid() == 0 && (before.MemoryPeakBytes == nil || res.MemoryPeakBytes == nil || *before.MemoryPeakBytes < 64<<20 || *res.MemoryPeakBytes > 32<<20) {
			t.Errorf("peaks of memory: %v, then %v", before.MemoryPeakBytes, res.MemoryPeakBytes)
		}
	}
}

// The same in one sandbox, which is used twice: so find finds what there is.
func TestWhatIsPassedOnIsFound(t *testing.T) {
	spec := fixture(t)
	inst, err := process.New(process.Options{}).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(t.Context())
	conn, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := guest.NewClient(conn, guest.Options{User: spec.User, Limits: spec.Limits})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var out strings.Builder
	for _, script := range []string{leave, find} {
		out.Reset()
		exit, err := client.Run(t.Context(), &sandbox.Exec{
			Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", script}, Dir: "/tmp", Env: []string{"PATH=/usr/bin"}, Stdout: &out, Stderr: os.Stderr,
		})
		if err != nil || exit.Code == nil || *exit.Code != 0 {
			t.Fatal(exit, err)
		}
	}
	var got []string
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || !slices.Equal(got, everything) {
		t.Errorf("found %q, want %q, %v", got, everything, err)
	}
}

// A sandbox that was made ahead is held to the limits of the run that gets it,
// by the kernel, and to nothing looser than it was made with.
func TestTightened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without a control group it is refused")
	}
	tightened := func(change func(*sandbox.Limits)) sandbox.Prepared {
		spec := fixture(t)
		p := prepare(t, spec)
		l := spec.Limits
		change(&l)
		if err := p.(sandbox.Tightener).Tighten(l); err != nil {
			t.Fatal(err)
		}
		return p
	}
	run := func(p sandbox.Prepared, script string) *sandbox.Result {
		res, err := p.Run(t.Context(), &sandbox.Exec{Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", script}, Dir: "/tmp"})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	const forks = "import os\nfor i in range(20):\n  if os.fork() == 0: os.pause() if hasattr(os, 'pause') else __import__('signal').pause()\n"
	if res := run(tightened(func(l *sandbox.Limits) { l.Memory = 24 << 20 }), "x = b'x' * (64 << 20)"); res.Resource != sandbox.LimitMemory {
		t.Errorf("64 MiB of 24: %+v", res)
	}
	if res := run(tightened(func(l *sandbox.Limits) { l.Processes = 5 }), forks); !slices.Contains(res.LimitsHit, sandbox.LimitProcesses) {
		t.Errorf("21 processes of 5: %+v", res)
	}
	if res := run(tightened(func(l *sandbox.Limits) { l.Processes = 1 }), "import os\nos.fork()"); res.Status != sandbox.StatusError || !slices.Contains(res.LimitsHit, sandbox.LimitProcesses) {
		t.Errorf("2 processes of 1: %+v", res)
	}
	if res := run(tightened(func(*sandbox.Limits) {}), "x = b'x' * (64 << 20)"); res.Status != sandbox.StatusSuccess {
		t.Errorf("64 MiB of what it was made with: %+v", res)
	}
	for name, change := range map[string]func(*sandbox.Limits){
		"more memory":    func(l *sandbox.Limits) { l.Memory *= 2 },
		"no memory":      func(l *sandbox.Limits) { l.Memory = sandbox.LeastMemory - 1 },
		"any memory":     func(l *sandbox.Limits) { l.Memory = 0 },
		"more processes": func(l *sandbox.Limits) { l.Processes++ },
		"any processor":  func(l *sandbox.Limits) { l.CPUs = 0 },
	} {
		spec := fixture(t)
		l := spec.Limits
		change(&l)
		if err := prepare(t, spec).(sandbox.Tightener).Tighten(l); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d, spec := process.New(process.Options{NoCgroups: true}), fixture(t)
	p, err := d.Prepare(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Destroy(context.Background())
	l := spec.Limits
	l.Memory /= 2
	if err := p.(sandbox.Tightener).Tighten(l); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("without a control group: %v", err)
	}
}
