// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// fake is a version 2 host made of ordinary files, which keeps the kernel's
// rules that matter here: control files appear by what the parent hands down,
// a group with processes does not hand memory or io down, and what is not
// writable refuses.
type fake struct {
	*kernel
	t        *testing.T
	readOnly []string          // paths below the mount that refuse writes, with all below them
	writable []string          // exceptions from readOnly
	delegate map[string]bool   // groups with user.delegate=1
	refuse   map[string]error  // "+io" → what enabling it answers
	wrote    map[string]string // file → what was written last
}

const fakePID = 4242

func newFake(t *testing.T, euid int, own string, groups map[string]string) *fake {
	f := &fake{kernel: realKernel(), t: t, delegate: map[string]bool{}, refuse: map[string]error{}, wrote: map[string]string{}}
	f.root, f.euid, f.pid = t.TempDir(), euid, fakePID
	f.kernel.mkdir, f.kernel.write = f.mkdirV2, f.writeV2
	f.kernel.rmdir = os.RemoveAll // ordinary directories hold their files
	f.kernel.writable = func(path string) bool { return !f.denied(path) }
	f.kernel.xattr = func(path, name string) string {
		if f.delegate[f.rel(path)] && name == "user.delegate" {
			return "1"
		}
		return ""
	}
	f.file("/proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n")
	f.file("/proc/self/cgroup", "0::"+own+"\n")
	for group, controllers := range groups {
		f.group(group, controllers, "")
	}
	return f
}

func (f *fake) path(group string) string { return filepath.Join(f.root, "/sys/fs/cgroup", group) }
func (f *fake) rel(path string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, f.path("/")), "/")
}

func (f *fake) file(path, text string) {
	f.t.Helper()
	path = filepath.Join(f.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		f.t.Fatal(err)
	}
}

// group lays one out with the controllers it was handed and its processes.
func (f *fake) group(group, controllers, procs string) {
	dir := filepath.Join("/sys/fs/cgroup", group)
	f.file(dir+"/cgroup.controllers", controllers)
	f.file(dir+"/cgroup.subtree_control", "")
	f.file(dir+"/cgroup.procs", procs)
	if group == "/" {
		return
	}
	f.file(dir+"/cgroup.type", "domain")
	for c := range strings.FieldsSeq(controllers) {
		for _, name := range map[string][]string{"memory": {"memory.max", "memory.swap.max", "memory.oom.group"}, "cpu": {"cpu.max"}, "pids": {"pids.max"}, "io": {"io.max"}}[c] {
			f.file(dir+"/"+name, "max")
		}
	}
}

func (f *fake) denied(path string) bool {
	below := func(list []string) bool {
		return slices.ContainsFunc(list, func(p string) bool {
			return (f.rel(path) + "/")[:min(len(p)+1, len(f.rel(path))+1)] == p+"/" || p == "/"
		})
	}
	return below(f.readOnly) && !below(f.writable)
}

func (f *fake) mkdirV2(dir string) error {
	if exists(dir) {
		return unix.EEXIST
	}
	if f.denied(dir) {
		return unix.EACCES
	}
	f.group(f.rel(dir), read(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control")), "")
	return nil
}

func (f *fake) writeV2(file, value string) error {
	dir := filepath.Dir(file)
	switch {
	case !exists(file):
		return unix.ENOENT
	case f.denied(file):
		return unix.EACCES
	case filepath.Base(file) == "cgroup.subtree_control":
		c := strings.TrimPrefix(value, "+")
		if err := f.refuse[value]; err != nil {
			return err
		}
		if exists(filepath.Join(dir, "cgroup.type")) && read(filepath.Join(dir, "cgroup.procs")) != "" && (c == "memory" || c == "io") {
			return unix.EBUSY
		}
		value = strings.TrimSpace(read(file) + " " + c)
	case filepath.Base(file) == "cgroup.procs":
		if value == "0" {
			value = strconv.Itoa(fakePID)
			f.file("/proc/self/cgroup", "0::"+f.rel(dir)+"\n")
		}
		f.leave(value)
		f.wrote[f.rel(file)] = value
		value = strings.TrimSpace(read(file) + "\n" + value)
		return os.WriteFile(file, []byte(value), 0o644)
	}
	f.wrote[f.rel(file)] = value
	return os.WriteFile(file, []byte(value), 0o644)
}

// leave takes a process out of the group that it is in.
func (f *fake) leave(pid string) {
	err := filepath.WalkDir(f.path("/"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		rest := slices.DeleteFunc(strings.Fields(read(path)), func(p string) bool { return p == pid })
		return os.WriteFile(path, []byte(strings.Join(rest, "\n")), 0o644)
	})
	if err != nil {
		f.t.Error(err)
	}
}

const all = "cpuset cpu io memory hugetlb pids"

func TestDetectV2(t *testing.T) {
	const user = "/user.slice/user-1000.slice/user@1000.service"
	for _, tt := range []struct {
		name  string
		euid  int
		own   string
		build func(f *fake)
		base  string // "" is none
		evict bool
		why   string // part of it
	}{
		{"root at the top", 0, "/", func(f *fake) { f.group("/", all, "1\n2\n4242") }, "/", false, ""},
		{"root in a session", 0, "/user.slice/user-0.slice/session-1.scope", func(f *fake) { f.group("/user.slice/user-0.slice/session-1.scope", all, "7\n4242") }, "/", false, ""},
		{"root in a delegated service", 0, "/system.slice/caisson.service", func(f *fake) {
			f.group("/system.slice/caisson.service", all, "4242")
			f.delegate["/system.slice/caisson.service"] = true
		}, "/system.slice/caisson.service", true, ""},
		{"root, delegated but shared", 0, "/system.slice/ci.service", func(f *fake) {
			f.group("/system.slice/ci.service", all, "7\n4242")
			f.delegate["/system.slice/ci.service"] = true
		}, "/", false, ""},
		{"root in a group somebody made", 0, "/lxc/x", func(f *fake) { f.group("/lxc/x", all, "4242") }, "/", false, ""},
		{"root in a container alone", 0, "/", func(f *fake) { f.group("/", all, "4242"); f.file("/sys/fs/cgroup/cgroup.type", "domain") }, "/", true, ""},
		{"root in a container with others", 0, "/", func(f *fake) { f.group("/", all, "1\n4242"); f.file("/sys/fs/cgroup/cgroup.type", "domain") }, "", false, "other processes"},
		{"root, mounted read-only", 0, "/", func(f *fake) { f.readOnly = []string{"/"} }, "", false, "read-only"},
		{"user in a session", 1000, "/user.slice/user-1000.slice/session-2.scope", func(f *fake) { f.readOnly = []string{"/"} }, "", false, "no cgroup was delegated"},
		{"user in an app of the user manager", 1000, user + "/app.slice/term.scope", func(f *fake) {
			f.group(user+"/app.slice/term.scope", "cpu memory pids", "4242")
			f.group(user+"/app.slice", "cpu memory pids", "")
			f.group(user, "cpu memory pids", "")
			f.delegate[user] = true
			f.readOnly, f.writable = []string{"/"}, []string{user}
		}, "", false, "not delegated"},
		{"user in our own scope", 1000, user + "/app.slice/caisson-9.scope", func(f *fake) {
			f.group(user+"/app.slice/caisson-9.scope", "cpu memory pids", "4242")
			f.readOnly, f.writable = []string{"/"}, []string{user}
		}, user + "/app.slice/caisson-9.scope", true, ""},
		{"user in a delegated scope", 1000, user + "/app.slice/run-1.scope", func(f *fake) {
			f.group(user+"/app.slice/run-1.scope", "cpu memory pids", "4242")
			f.delegate[user+"/app.slice/run-1.scope"] = true
			f.readOnly, f.writable = []string{"/"}, []string{user}
		}, user + "/app.slice/run-1.scope", true, ""},
		{"user in a delegated scope with a shell", 1000, user + "/app.slice/run-1.scope", func(f *fake) {
			f.group(user+"/app.slice/run-1.scope", "cpu memory pids", "7\n4242")
			f.delegate[user+"/app.slice/run-1.scope"] = true
			f.readOnly, f.writable = []string{"/"}, []string{user}
		}, "", false, "other processes"},
		{"user in the leaf already", 1000, user + "/caisson-9.scope/caisson-self", func(f *fake) {
			f.group(user+"/caisson-9.scope", "cpu memory pids", "")
			f.group(user+"/caisson-9.scope/caisson-self", "cpu memory pids", "4242")
			f.readOnly, f.writable = []string{"/"}, []string{user}
		}, user + "/caisson-9.scope", false, ""},
		{"user in a chowned group", 1000, "/mine", func(f *fake) {
			f.group("/mine", all, "4242")
			f.readOnly, f.writable = []string{"/"}, []string{"/mine"}
		}, "/mine", true, ""},
		{"user in a bare leaf of a chowned group", 1000, "/mine/leaf", func(f *fake) {
			f.group("/mine", all, "")
			f.group("/mine/leaf", "", "4242")
			f.readOnly, f.writable = []string{"/"}, []string{"/mine"}
		}, "/mine", false, ""},
		{"chowned but without controllers", 1000, "/mine", func(f *fake) {
			f.group("/mine", "", "4242")
			f.readOnly, f.writable = []string{"/"}, []string{"/mine"}
		}, "", false, "without the memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, tt.euid, tt.own, map[string]string{"/": all, tt.own: all})
			tt.build(f)
			h := detect(f.kernel)
			if h.Version != 2 {
				t.Fatalf("version %d", h.Version)
			}
			want := ""
			if tt.base != "" {
				want = f.path(tt.base)
			}
			if got := h.Base(Memory); got != want || h.evict != tt.evict {
				t.Errorf("base %q evict %v, want %q %v (%s)", got, h.evict, want, tt.evict, h.Why)
			}
			if !strings.Contains(h.Why, tt.why) || (tt.why == "") != (h.Why == "") || (tt.why == "") != (h.Remedy == "") {
				t.Errorf("why %q remedy %q, want %q", h.Why, h.Remedy, tt.why)
			}
			if strings.Contains(h.Why, f.root) {
				t.Errorf("%q shows the fake's own root", h.Why)
			}
			if ok, why := h.Can(Memory); ok != (want != "") || ok != (why == "") {
				t.Errorf("Can: %v %q", ok, why)
			}
			if len(f.wrote) > 0 {
				t.Errorf("Detect wrote %v", f.wrote)
			}
		})
	}
}

// A service whose process was put where its groups are cannot be started beside
// them; one that was put into a group below can, and so can a scope, which is made
// anew. Making a group changes nothing about it.
func TestReturns(t *testing.T) {
	const unit, scope = "/system.slice/caisson.service", "/user.slice/caisson-9.scope"
	for own, want := range map[string]bool{unit: false, unit + "/caisson-self": true, scope: true} {
		t.Run(own, func(t *testing.T) {
			const all = "cpu io memory pids"
			f := newFake(t, 1000, own, map[string]string{"/": all, unit: all, scope: all})
			f.group(own, all, "4242")
			f.delegate[unit] = true
			f.readOnly, f.writable = []string{"/"}, []string{unit, scope}
			h := detect(f.kernel)
			if h.Why != "" {
				t.Fatal(h.Why)
			}
			for i := range 2 {
				if why, remedy := h.Returns(); (why == "") != want || (remedy == "") != want {
					t.Errorf("it can return: %v, want %v (%s, %s)", why == "", want, why, remedy)
				}
				if _, err := h.Create("caisson-test"+strconv.Itoa(i), Limits{Memory: 1 << 20}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestCreateV2(t *testing.T) {
	const own = "/user.slice/caisson-9.scope"
	f := newFake(t, 1000, own, map[string]string{"/": all, own: all})
	f.group(own, all, "4242")
	h := detect(f.kernel)
	g, err := h.Create("caisson-a", Limits{Memory: 1 << 28, CPUs: 0.5, Pids: 64, IO: 1000, IOPS: 10, Devices: []Device{{8, 0}}})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"/caisson-self/cgroup.procs":          "4242",
		"/caisson/caisson-a/memory.max":       "268435456",
		"/caisson/caisson-a/memory.swap.max":  "0",
		"/caisson/caisson-a/memory.oom.group": "1",
		"/caisson/caisson-a/cpu.max":          "50000 100000",
		"/caisson/caisson-a/pids.max":         "64",
		"/caisson/caisson-a/io.max":           "8:0 rbps=1000 wbps=1000 riops=10 wiops=10",
	} {
		if got := f.wrote[own+file]; got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if got := f.wrote["/cgroup.subtree_control"]; got != "" {
		t.Errorf("the top, which is not ours, was told %q", got)
	}
	if want := []string{f.path(own + "/caisson/caisson-a")}; !slices.Equal(g.Dirs(), want) {
		t.Errorf("Dirs %v, want %v", g.Dirs(), want)
	}
	if fd, err := g.FD(); err != nil || fd.Close() != nil {
		t.Errorf("FD: %v", err)
	}
}

// What this process has started before its first group is where it was, and in the
// way as well.
func TestChildrenLeaveTheBaseToo(t *testing.T) {
	const own = "/user.slice/caisson-9.scope"
	f := newFake(t, 1000, own, map[string]string{"/": all, own: all})
	f.group(own, all, "4242")
	h := detect(f.kernel)
	f.group(own, all, "4242\n4300\n4301")
	if _, err := h.Create("caisson-a", Limits{Memory: 1 << 28}); err != nil {
		t.Fatal(err)
	}
	if got := read(f.path(own + "/caisson-self/cgroup.procs")); got != "4242\n4300\n4301" {
		t.Errorf("in the leaf are %q", got)
	}
}

// A controller that the kernel will not hand down costs only the limits that
// need it.
func TestCreateV2WithoutAController(t *testing.T) {
	f := newFake(t, 0, "/", map[string]string{"/": all})
	f.refuse["+cpu"] = unix.EINVAL // real-time processes outside the top
	h := detect(f.kernel)
	if _, err := h.Create("caisson-a", Limits{Memory: 1 << 28}); err != nil {
		t.Fatal(err)
	}
	_, err := h.Create("caisson-b", Limits{Memory: 1 << 28, CPUs: 1})
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "+cpu: invalid argument") || sandbox.Hint(err) == "" {
		t.Fatalf("a limit that cannot hold: %v, hint %q", err, sandbox.Hint(err))
	}
	if exists(f.path("/caisson/caisson-b")) {
		t.Error("the refused group is left")
	}
}

func TestUsageV2(t *testing.T) {
	f := newFake(t, 0, "/", map[string]string{"/": all})
	g, err := detect(f.kernel).Create("caisson-a", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	dir := "/sys/fs/cgroup/caisson/caisson-a/"
	if g.OOMKilled() || g.PidsMaxHit() || g.Usage().Memory != nil {
		t.Error("an empty group counts something")
	}
	// Killed by the host's own shortage: not this limit's doing.
	f.file(dir+"memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 1\noom_group_kill 0\n")
	if g.OOMKilled() {
		t.Error("a kill by the host counts as the group's limit")
	}
	f.file(dir+"memory.events", "max 9\noom 1\noom_kill 7\noom_group_kill 1\n")
	f.file(dir+"pids.events", "max 3\n")
	f.file(dir+"cpu.stat", "usage_usec 1500\nuser_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 77\n")
	f.file(dir+"memory.current", "4096\n")
	f.file(dir+"memory.peak", "8192\n")
	f.file(dir+"pids.current", "5\n")
	f.file(dir+"cgroup.procs", "11\n12\n")
	f.file(dir+"inner/cgroup.procs", "13\n")
	u := g.Usage()
	if !g.OOMKilled() || !g.PidsMaxHit() || *u.CPU != 1500_000 || *u.Memory != 4096 || *u.MemoryPeak != 8192 || *u.Processes != 5 {
		t.Errorf("usage %+v", u)
	}
	if n, d := g.Throttled(); n != 4 || d != 77_000 {
		t.Errorf("throttled %d, %v", n, d)
	}
	if pids, err := g.Pids(); err != nil || !slices.Equal(pids, []int{11, 12, 13}) {
		t.Errorf("Pids %v, %v", pids, err)
	}
}

func TestDetectOthers(t *testing.T) {
	const v1 = "31 23 0:28 / /m rw - cgroup cgroup rw,memory\n32 23 0:29 / /p rw - cgroup cgroup rw,pids\n33 23 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	build := func(t *testing.T, euid int, mounts string, own string) *fake {
		f := newFake(t, euid, "/", map[string]string{"/": "hugetlb"})
		f.file("/proc/self/mountinfo", mounts)
		f.file("/proc/self/cgroup", own)
		f.file("/m/a/x.slice/memory.limit_in_bytes", "")
		f.file("/m/job/memory.limit_in_bytes", "")
		f.file("/p/pids.max", "")
		return f
	}
	t.Run("hybrid counts as 1", func(t *testing.T) {
		f := build(t, 0, v1, "4:memory:/job\n3:pids:/gone\n0::/\n")
		h := detect(f.kernel)
		if h.Version != 1 || h.Why != "" || h.Base(Memory) != filepath.Join(f.root, "m/job") || h.Base(Pids) != filepath.Join(f.root, "p") || h.Base(CPU) != "" {
			t.Errorf("%+v", h)
		}
		if len(h.Notes) != 1 || !strings.Contains(h.Notes[0], "swap") {
			t.Errorf("notes %q", h.Notes)
		}
		if c := h.Clause(CPU); c.Enforcement != sandbox.Off || c.Detail == "" {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a unit of systemd is left alone", func(t *testing.T) {
		f := build(t, 0, v1, "4:memory:/a/x.slice\n")
		if h := detect(f.kernel); h.Base(Memory) != filepath.Join(f.root, "m") {
			t.Errorf("base %q", h.Base(Memory))
		}
	})
	t.Run("an ordinary user has nothing on 1", func(t *testing.T) {
		f := build(t, 1000, v1, "4:memory:/job\n")
		f.kernel.writable = func(string) bool { return false }
		if h := detect(f.kernel); !strings.Contains(h.Why, "only root") || h.Remedy == "" {
			t.Errorf("%+v", h)
		}
	})
	t.Run("nothing mounted", func(t *testing.T) {
		f := build(t, 0, "", "0::/\n")
		h := detect(f.kernel)
		if h.Version != 0 || h.Why == "" || h.Remedy == "" {
			t.Errorf("%+v", h)
		}
		if _, err := h.Create("caisson-x", Limits{}); !errors.Is(err, sandbox.ErrUnsupported) || sandbox.Hint(err) != h.Remedy {
			t.Errorf("Create: %v", err)
		}
	})
}

func TestWholeDevice(t *testing.T) {
	root := t.TempDir()
	sys := filepath.Join(root, "sys/devices/pci/block/sda")
	for path, text := range map[string]string{"dev": "8:0\n", "sda1/dev": "8:1\n", "sda1/partition": "1\n"} {
		file := filepath.Join(sys, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "sys/dev/block"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"8:0": "../../devices/pci/block/sda", "8:1": "../../devices/pci/block/sda/sda1"} {
		if err := os.Symlink(target, filepath.Join(root, "sys/dev/block", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []Device{{8, 0}, {8, 1}} {
		if got, err := wholeDevice(root, "/x", d); err != nil || got != (Device{8, 0}) {
			t.Errorf("%v: %v, %v; want the disk 8:0", d, got, err)
		}
	}
	for _, d := range []Device{{0, 44}, {9, 9}} {
		if _, err := wholeDevice(root, "/x", d); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%v: %v, want ErrUnsupported", d, err)
		}
	}
	if _, err := BlockDevice("/proc"); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("/proc: %v", err)
	}
	if _, err := BlockDevice("/nonexistent"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
}
