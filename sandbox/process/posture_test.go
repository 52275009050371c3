// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

// posture is what the host sees of one of a sandbox's processes. What
// docs/security/process.md claims is held here as golden facts: a protection that goes
// turns it red.
type posture struct {
	Caps       string // inheritable, permitted, effective, bounding, ambient
	NoNewPrivs string
	Seccomp    string
	Filters    string
	Private    bool // as root: a uid of caisson's private range; else: the caller's
	Groups     string
	Shared     []string // namespaces
	Umask      string
	Cwd        string
	Env        string
	Cores      string
	Pending    string // signals that may wait, timers included; not of init, which has neither
	Files      []string
	Group      bool // in the sandbox's control group; true where there is none
	Mounts     []string
	Signals    string // ignored and blocked; not of init, to which they mean nothing
	Slack      string // of timers, as root sees it; not of init, which has none
	Standing   string // what sets it apart from other processes
}

// So it is of an owner that goes before all others on the machine.
func TestPostureOfFirst(t *testing.T) { drivertest.AsFirst(t, "TestPosture") }

func TestPosture(t *testing.T) {
	for name, run := range roads {
		for _, processes := range []int{sandbox.DefaultLimits().Processes, 3} { // few are held in another way
			t.Run(fmt.Sprint(name, ", ", processes), func(t *testing.T) { testPosture(t, run, processes) })
		}
	}
}

// run is one of the ways to run a program without an agent.
type run func(context.Context, *process.Driver, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error)

var roads = map[string]run{
	"at once": func(ctx context.Context, d *process.Driver, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
		return d.Run(ctx, spec, exec)
	},
	"made ahead": func(ctx context.Context, d *process.Driver, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
		p, err := d.Prepare(ctx, spec)
		if err != nil {
			return nil, err
		}
		defer p.Destroy(ctx)
		return p.Run(ctx, exec)
	},
}

func testPosture(t *testing.T, run run, processes int) {
	t.Setenv("CAISSON_CANARY", "canary")
	// Inherited by whom does not mind.
	canary, err := unix.FcntlInt(0, unix.F_DUPFD, 77)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(canary)
	signal.Ignore(unix.SIGHUP) // as nohup does, and programs inherit it
	defer signal.Reset(unix.SIGHUP)
	lateTimers(t)
	const none = "0000000000000000"
	mounts := []string{
		"/ ro,nosuid,nodev", "/dev ro,nosuid,nodev,noexec", "/dev/full ro,nosuid,noexec", "/dev/null ro,nosuid,noexec", "/dev/pts rw,nosuid,noexec",
		"/dev/random ro,nosuid,noexec", "/dev/shm rw,nosuid,nodev", "/dev/tty ro,nosuid,noexec", "/dev/urandom ro,nosuid,noexec", "/dev/zero ro,nosuid,noexec",
		"/home/user rw,nosuid,nodev", "/proc rw,nosuid,nodev,noexec", "/sys ro,nosuid,nodev,noexec",
		"/sys/fs/cgroup ro,nosuid,nodev,noexec", "/sys/fs/cgroup ro,nosuid,nodev,noexec", "/tmp rw,nosuid,nodev",
	}
	want := posture{
		Caps: strings.TrimSuffix(strings.Repeat(none+" ", 5), " "), NoNewPrivs: "1", Seccomp: "2", Filters: "1",
		Private: true, Cwd: "/", Umask: "0022", Cores: "1 1", Group: true, Mounts: mounts,
	}
	first := want
	program := want
	program.Cwd, program.Env = "/tmp", "ONLY=this\x00"
	program.Files = []string{"0 pipe", "1 pipe", "2 pipe"}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &own); err != nil {
		t.Fatal(err)
	}
	program.Pending = fmt.Sprint(min(own.Cur/16, 4096), min(own.Cur/16, 4096))
	program.Signals = none + " " + none
	if os.Geteuid() == 0 {
		program.Slack = "50000"
	}
	got := whileRunning(t, run, processes)
	if os.Geteuid() != 0 {
		// A user's groups cannot be given up without privilege.
		for name := range got {
			p := got[name]
			p.Groups = ""
			got[name] = p
		}
	}
	for name, want := range map[string]posture{"init": first, "sh": program} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(got) != 2 {
		t.Errorf("%d processes, want two", len(got))
	}
}

// lateTimers lets this process's timers be late, as those of one that serves are, which
// no program inside is to inherit.
func lateTimers(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	set := func(nanoseconds string) {
		threads, err := filepath.Glob("/proc/self/task/*")
		if err != nil || len(threads) == 0 {
			t.Fatalf("%d threads, %v", len(threads), err)
		}
		for _, thread := range threads {
			// A thread is a process to this file, and may have ended.
			_ = os.WriteFile("/proc/"+filepath.Base(thread)+"/timerslack_ns", []byte(nanoseconds), 0)
		}
	}
	set("300000")
	t.Cleanup(func() { set("50000") })
}

// fixture is the usual one.
func fixture(t testing.TB) *sandbox.Spec {
	t.Helper()
	dir, err := os.MkdirTemp("", "process-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	scratch := []sandbox.Scratch{
		{Target: "/home/user"}, {Target: "/tmp", Sticky: true, Size: 1 << 20}, {Target: "/dev/shm", Size: 1 << 20, Sticky: true, Memory: true},
	}
	root, err := image.Host(t.Context(), image.HostOptions{Cache: filepath.Join(dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &sandbox.Spec{
		ID:   "sbx_" + strings.ReplaceAll(filepath.Base(dir), "-", "") + "0123456789",
		Root: root.Sandbox(), Scratch: scratch, User: sandbox.DefaultUser(), Limits: sandbox.DefaultLimits(), StateDir: state,
	}
}

// whileRunning starts a program and looks at the sandbox's processes.
func whileRunning(t *testing.T, run run, processes int) map[string]posture {
	t.Helper()
	spec := fixture(t)
	spec.Limits.Processes = processes
	in, release := io.Pipe()
	up, started := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := run(ctx, process.New(process.Options{}), spec, &sandbox.Exec{
			Argv: []string{"/bin/sh", "-c", "echo up; read x"}, Dir: "/tmp", Env: []string{"ONLY=this"}, Stdin: in,
			Stdout: onWrite(func() { close(up) }), Started: func() { close(started) },
		})
		ended <- err
	}()
	select {
	case <-up:
		<-started // who made it is gone
	case err := <-ended:
		t.Fatalf("it ended early: %v", err)
	}
	found := make(map[string]posture)
	for _, pid := range children(t) {
		argv0, _, _ := strings.Cut(read(t, pid, "cmdline"), "\x00")
		p := look(t, pid, spec.ID)
		if gone(pid) {
			continue // who made it, until it is waited for
		}
		if argv0 == "init" {
			p.Signals, p.Slack, p.Pending = "", "", ""
		}
		found[filepath.Base(argv0)] = p
	}
	release.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return found
}

type onWrite func()

func (f onWrite) Write(b []byte) (int, error) { f(); return len(b), nil }

// children are this process's, of all its threads. They are looked for by their
// parent: the kernel's lists of children are each thread's, and what a thread leaves
// that ends goes to the list of another, which may have been read already.
func children(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // it may have ended
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func read(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil && !os.IsNotExist(err) && !os.IsPermission(err) && !gone(pid) {
		t.Fatal(err)
	}
	return string(data)
}

// gone reports whether a process has, or is on its way (PF_EXITING, linux/sched.h: it
// lets go of its memory before it is a zombie): what is left of it holds nothing.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 7 || fields[0] == "Z" || fields[0] == "X" {
		return true
	}
	flags, _ := strconv.ParseUint(fields[6], 10, 32)
	return flags&4 != 0
}

func look(t *testing.T, pid int, id string) posture {
	t.Helper()
	status := make(map[string]string)
	for line := range strings.Lines(read(t, pid, "status")) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	p := posture{
		NoNewPrivs: status["NoNewPrivs"], Seccomp: status["Seccomp"], Filters: status["Seccomp_filters"],
		Signals: status["SigIgn"] + " " + status["SigBlk"], Groups: status["Groups"], Umask: status["Umask"], Env: read(t, pid, "environ"),
	}
	var caps []string
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		caps = append(caps, status[set])
	}
	p.Caps = strings.Join(caps, " ")
	p.Private = true
	for _, key := range []string{"Uid", "Gid"} {
		for _, word := range strings.Fields(status[key]) {
			n, _ := strconv.Atoi(word)
			private := n >= 0x70000000 && n < 0x7fff0000
			p.Private = p.Private && (private || os.Geteuid() != 0 && n == os.Geteuid())
		}
	}
	if os.Geteuid() == 0 {
		p.Slack = strings.TrimSpace(read(t, pid, "timerslack_ns"))
	}
	p.Standing = drivertest.Standing(t, pid)
	p.Cwd, _ = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	for _, ns := range []string{"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"} {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil && !os.IsPermission(err) && !gone(pid) {
			t.Fatal(err)
		}
		if ours, _ := os.Readlink("/proc/self/ns/" + ns); theirs == ours {
			p.Shared = append(p.Shared, ns)
		}
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &limit); err != nil && !gone(pid) {
		t.Fatal(err)
	}
	p.Cores = fmt.Sprint(limit.Cur, limit.Max)
	if err := unix.Prlimit(pid, unix.RLIMIT_SIGPENDING, nil, &limit); err != nil && !gone(pid) {
		t.Fatal(err)
	}
	p.Pending = fmt.Sprint(limit.Cur, limit.Max)
	p.Files = files(t, pid)
	groups := read(t, pid, "cgroup")
	p.Group = os.Geteuid() != 0 || strings.Contains(groups, id)
	p.Mounts = mountsOf(t, pid)
	return p
}

func files(t *testing.T, pid int) (open []string) {
	t.Helper()
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, e := range entries {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		if err == nil {
			name, _, _ = strings.Cut(name, ":")
			open = append(open, e.Name()+" "+name)
		}
	}
	slices.Sort(open)
	return open
}

// mountsOf lists what is mounted, but for the host's toolchain and what is
// hidden in /proc, which differ from host to host.
func mountsOf(t *testing.T, pid int) (list []string) {
	t.Helper()
	for line := range strings.Lines(read(t, pid, "mountinfo")) {
		f := strings.Fields(line)
		at := f[4]
		var flags []string
		for _, o := range strings.Split(f[5], ",") {
			if slices.Contains([]string{"ro", "rw", "nosuid", "nodev", "noexec"}, o) {
				flags = append(flags, o)
			}
		}
		entry := at + " " + strings.Join(flags, ",")
		switch {
		case strings.HasPrefix(at, "/proc/"):
			if !strings.HasPrefix(strings.Join(flags, ","), "ro,nosuid,nodev,noexec") {
				t.Errorf("in /proc: %s", entry)
			}
		case slices.Contains(strings.Split(at, "/"), "usr") || strings.HasPrefix(at, "/lib") || strings.HasPrefix(at, "/bin") || strings.HasPrefix(at, "/sbin") || strings.HasPrefix(at, "/opt"):
			if !strings.HasPrefix(strings.Join(flags, ","), "ro,nosuid,nodev") {
				t.Errorf("of the host: %s", entry)
			}
		default:
			list = append(list, entry)
		}
	}
	slices.Sort(list)
	return list
}
