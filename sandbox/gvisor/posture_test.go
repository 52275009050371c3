// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// posture is what the host sees of one of a sandbox's processes. What doc.go
// claims is held here as golden facts: a protection that goes turns it red.
type posture struct {
	Caps       string   // effective and permitted, in its user namespace
	Sets       []string // inheritable and bounding, of each of its threads that differs
	Ambient    string
	NoNewPrivs string
	Seccomp    string
	Filters    bool // ours and gVisor's own
	Groups     string
	Private    bool // as root: a uid of caisson's private range; else: the caller's
	Shared     []string
	Env        []string // names only
	Cores      string
	Foreign    []string // descriptors that it has no business with
	Slack      string   // of its timers; empty where the host does not tell this user
	Standing   string   // what sets it apart from other processes
}

// The host's kernel and caisson's state are all that a half may hold: its view
// of the mounts (below /root), anonymous objects, its own spec, and the
// runtime's look at its processor quota.
var ownDescriptors = regexp.MustCompile(`^(/root(/.*)?|/dev/null|/|(socket|pipe|anon_inode):.*|/memfd:.*|.*/cpu(\.cfs_(quota|period)_us|\.max)|STATE/.*|/run/\.caisson/bundle/config\.json)$`)

func TestPostureAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestPosture") }

// So it is of an owner that goes before all others on the machine.
func TestPostureOfFirst(t *testing.T) { drivertest.AsFirst(t, "TestPosture") }

func TestPosture(t *testing.T) { holdPosture(t) }

func holdPosture(t *testing.T) {
	spec := fixture(t)
	t.Setenv("CAISSON_CANARY", "canary")
	canary, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0) // inherited by whom does not mind
	if err != nil {
		t.Fatal(err)
	}
	high, err := unix.FcntlInt(uintptr(canary), unix.F_DUPFD, 77)
	unix.Close(canary)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(high)

	processes := whileRunning(t, spec)
	// Chown, dac_override, dac_read_search, fowner, fsetid, and sys_chroot: to
	// serve files, in a user namespace that owns nothing. It executes nothing.
	gofer := posture{Caps: "000000000004001f 000000000004001f", Sets: []string{"000000000004001f 000000000004001f"}, Ambient: "000000000004001f"}
	// The first five, and sys_ptrace for the processes that run guest code.
	sentry := posture{Caps: "000000000008001f 000000000008001f", Sets: []string{"0000000000000000 000000000008001f"}, Ambient: "0000000000000000"}
	if os.Geteuid() != 0 {
		// It began with what makes its root, and gave that up with all else.
		sentry.Caps, sentry.Sets = "0000000000000000 0000000000000000", []string{"0000000000000000 0000000000000000"}
	}
	for name, want := range map[string]posture{"runsc-gofer": gofer, "runsc-sandbox": sentry} {
		want.NoNewPrivs, want.Seccomp, want.Filters, want.Private, want.Cores = "1", "2", true, true, "0 0"
		want.Shared = []string{"cgroup"}
		if os.Geteuid() == 0 {
			want.Slack = "300000" // no protection, but a tenth of the processor time
		}
		got, ok := processes[name]
		if !ok {
			t.Errorf("there is no %s", name)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestShimOfDeadOwnerAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestShimOfDeadOwner") }

// whileRunning starts a program and looks at the sandbox's processes.
func whileRunning(t *testing.T, spec *sandbox.Spec) map[string]posture {
	t.Helper()
	in, release := io.Pipe()
	up := &waiter{text: "up", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{
			Argv: []string{"sh", "-c", "echo up; read x"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdin: in, Stdout: up,
		})
		ended <- err
	}()
	select {
	case <-up.seen:
	case err := <-ended:
		t.Fatalf("it ended early: %v", err)
	}
	processes := make(map[string]posture)
	shims := descendants(t, os.Getpid(), "caisson-shim")
	if len(shims) != 1 {
		t.Fatalf("%d shims", len(shims))
	}
	if line := read(t, shims[0], "cmdline"); line != "caisson-shim\x00" {
		t.Errorf("the shim was started as %q", line)
	}
	if env := read(t, shims[0], "environ"); env != "GOMAXPROCS=1\x00" {
		t.Errorf("the shim's environment is %q", env)
	}
	if name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/77", shims[0])); err == nil {
		t.Errorf("the shim has inherited %s", name)
	}
	if apart := drivertest.Standing(t, shims[0]); apart != "" {
		t.Errorf("the shim has %s", apart)
	}
	all := shims
	for _, name := range []string{"runsc-gofer", "runsc-sandbox"} {
		for _, pid := range descendants(t, shims[0], name) {
			processes[name] = look(t, pid, spec.StateDir)
			all = append(all, pid)
		}
	}
	oneGroup(t, all)
	release.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return processes
}

// waiter is a writer that tells when its text was written.
type waiter struct {
	text string
	seen chan struct{}
	all  []byte
}

func (w *waiter) Write(p []byte) (int, error) {
	before := strings.Contains(string(w.all), w.text)
	w.all = append(w.all, p...)
	if !before && strings.Contains(string(w.all), w.text) {
		close(w.seen)
	}
	return len(p), nil
}

// descendants are pid's children whose argv[0] is name.
func descendants(t *testing.T, pid int, name string) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, list := range lists {
		data, _ := os.ReadFile(list) // a thread may end
		for _, field := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)) // so may a process
			if argv0, _, _ := strings.Cut(string(line), "\x00"); argv0 == name {
				found = append(found, child)
			}
		}
	}
	return found
}

// oneGroup holds that all threads of all pids are in the same control groups, and as
// root in the sandbox's own.
func oneGroup(t *testing.T, pids []int) {
	t.Helper()
	first := ""
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("%d has no threads: %v", pid, err)
		}
		for _, task := range tasks {
			groups, err := os.ReadFile(task)
			if os.IsNotExist(err) || errors.Is(err, unix.ESRCH) {
				continue // it has ended
			}
			if first == "" {
				first = string(groups)
			}
			if err != nil || string(groups) != first {
				t.Errorf("%s, %v:\n%sthe shim's:\n%s", task, err, groups, first)
			}
		}
	}
	if os.Geteuid() == 0 && !strings.Contains(first, "caisson") {
		t.Errorf("they are in no group of the sandbox's:\n%s", first)
	}
}

func read(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

func look(t *testing.T, pid int, state string) posture {
	t.Helper()
	status := make(map[string]string)
	for line := range strings.Lines(read(t, pid, "status")) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	p := posture{
		Caps: status["CapEff"] + " " + status["CapPrm"], Ambient: status["CapAmb"],
		NoNewPrivs: status["NoNewPrivs"], Seccomp: status["Seccomp"], Groups: status["Groups"],
	}
	p.Sets = capabilitySets(t, pid)
	filters, _ := strconv.Atoi(status["Seccomp_filters"])
	p.Filters = filters >= 2
	p.Private = true
	for _, key := range []string{"Uid", "Gid"} {
		for _, id := range strings.Fields(status[key]) {
			n, _ := strconv.Atoi(id)
			private := n >= 0x70000000 && n < 0x7fff0000
			p.Private = p.Private && (private || os.Geteuid() != 0 && n == os.Geteuid())
		}
	}
	for _, ns := range []string{"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"} {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil {
			t.Fatal(err)
		}
		if ours, _ := os.Readlink("/proc/self/ns/" + ns); theirs == ours {
			p.Shared = append(p.Shared, ns)
		}
	}
	for variable := range strings.SplitSeq(strings.TrimSuffix(read(t, pid, "environ"), "\x00"), "\x00") {
		// The time of the start is gVisor's own.
		if name, _, _ := strings.Cut(variable, "="); name != "" && name != "RUNSC_START_TIME_NANOS" {
			p.Env = append(p.Env, name)
		}
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	p.Cores = fmt.Sprint(limit.Cur, limit.Max)
	p.Foreign = foreign(t, pid, state)
	if os.Geteuid() == 0 {
		p.Slack = strings.TrimSpace(read(t, pid, "timerslack_ns"))
	}
	p.Standing = drivertest.Standing(t, pid)
	return p
}

// capabilitySets are the inheritable and bounding sets of pid's threads.
func capabilitySets(t *testing.T, pid int) []string {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	var sets []string
	for _, name := range threads {
		data, _ := os.ReadFile(name) // a thread may end
		if m := bothSets.FindStringSubmatch(string(data)); m != nil {
			sets = append(sets, m[1]+" "+m[2])
		}
	}
	slices.Sort(sets)
	return slices.Compact(sets)
}

var bothSets = regexp.MustCompile(`(?s)\nCapInh:\s*(\w+)\n.*\nCapBnd:\s*(\w+)\n`)

// foreign lists the descriptors of pid that point out of its world.
func foreign(t *testing.T, pid int, state string) []string {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	// Seen from here what a half has open lies on a mount of nowhere, and is called by
	// its name below that.
	below := belowMount(t, state)
	var bad []string
	for _, link := range links {
		name, err := os.Readlink(link)
		if rest, ok := strings.CutPrefix(name, below+"/"); ok {
			name = state + "/" + rest
		}
		if err == nil && !ownDescriptors.MatchString(strings.Replace(name, state, "STATE", 1)) {
			bad = append(bad, name)
		}
	}
	slices.Sort(bad)
	return bad
}

// belowMount is a directory's name below the mount that it lies on.
func belowMount(t *testing.T, dir string) string {
	t.Helper()
	device := func(dir string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		return st.Dev
	}
	top := dir
	for top != "/" && device(filepath.Dir(top)) == device(dir) {
		top = filepath.Dir(top)
	}
	return "/" + strings.Trim(strings.TrimPrefix(dir, top), "/")
}
