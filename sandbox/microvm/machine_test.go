// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// machine is one that runs, of an image with a few of this host's programs.
type machine struct {
	testing.TB
	spec     *sandbox.Spec
	instance sandbox.Instance
	client   *guest.Client
}

// newSpec is what a machine is started with.
func newSpec(t testing.TB, change func(*sandbox.Spec)) *sandbox.Spec {
	t.Helper()
	dir := t.TempDir()
	layout := filepath.Join(dir, "layout")
	imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, "sh", "cat", "id", "uname", "dd", "df", "head", "sleep", "ls", "od", "rm", "bash"),
		imagetest.Layer(t, "etc/", "etc/passwd=root:x:0:0::/root:/bin/sh\n",
			"etc/machine-id="+strings.Repeat("x", 1<<20+1))).Layout(layout) // too large to be read: it boots all the same
	ref, err := reference.Parse(layout)
	if err != nil {
		t.Fatal(err)
	}
	store, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := store.Get(t.Context(), ref, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := store.Root(t.Context(), info, image.RootOptions{EROFS: true, Targets: []image.Target{{Path: "/home/user", Dir: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	state := filepath.Join(dir, "run", "one")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &sandbox.Spec{
		ID: "sbx_vm" + rand.Text(), Root: root.Sandbox(), User: sandbox.DefaultUser(), Limits: sandbox.DefaultLimits(), StateDir: state,
		Scratch: []sandbox.Scratch{{Target: "/home/user"}, {Target: "/tmp", Sticky: true, Size: 8 << 20}, {Target: "/dev/shm", Memory: true, Sticky: true, Size: 256 << 20}},
	}
	s.Limits.Memory = 96 << 20
	if change != nil {
		change(s)
	}
	return s
}

// start boots a machine, which ends with the test, and then has left nothing.
func start(t testing.TB, d sandbox.Driver, s *sandbox.Spec) *machine {
	t.Helper()
	began := time.Now()
	instance, err := d.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: its agent began after %v", d.Name(), time.Since(began).Round(10*time.Millisecond))
	m := &machine{TB: t, spec: s, instance: instance}
	t.Cleanup(func() {
		if m.client != nil {
			m.client.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := instance.Destroy(ctx); err != nil {
			t.Error(err)
		}
		if pid := monitorOf(t, s.ID); pid != "" {
			t.Errorf("the monitor still runs: %s", pid)
		}
	})
	conn, err := instance.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.client, err = guest.NewClient(conn, guest.Options{Limits: s.Limits, User: s.User}); err != nil {
		t.Fatal(err)
	}
	return m
}

// sh runs a script and returns what it wrote.
func (m *machine) sh(script string) string {
	m.Helper()
	var out bytes.Buffer
	_, err := m.client.Run(m.Context(), &sandbox.Exec{Argv: []string{"sh", "-c", script}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out})
	if err != nil {
		m.Fatalf("%s: %v\n%s", script, err, &out)
	}
	return out.String()
}

// monitorOf is the number of the process that is a machine's monitor.
func monitorOf(t testing.TB, id string) string {
	t.Helper()
	if pid := processOf(t, "qemu", "\x00"+id+"\x00"); pid != "" {
		return pid
	}
	return processOf(t, "firecracker", "\x00"+strings.ReplaceAll(id, "_", "-")+"\x00")
}

// processOf is the number of a process whose command line has all the words.
func processOf(t testing.TB, words ...string) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		b, err := os.ReadFile(file)
		has := err == nil
		for _, w := range words {
			has = has && bytes.Contains(b, []byte(w))
		}
		if has {
			return filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}

// TestMachine boots one of each kind: a kernel of its own, a root that cannot be changed,
// scratch, and a monitor in a box.
func TestMachine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, kind := range []microvm.Machine{microvm.Micro, microvm.Full} {
		t.Run(string(kind), func(t *testing.T) {
			m := start(t, newDriver(t, kind), newSpec(t, nil))
			if got := m.sh("uname -s; id -u"); got != "Linux\n1000\n" {
				t.Errorf("inside: %q", got)
			}
			here, err := os.ReadFile("/proc/version")
			if err != nil {
				t.Fatal(err)
			}
			if got := m.sh("cat /proc/version"); got == string(here) {
				t.Errorf("it has this host's kernel: %s", got)
			}
			if got := m.sh("echo x > /home/user/a && cat /home/user/a; (echo x > /etc/a) 2>/dev/null || echo closed; (echo c > /proc/sysrq-trigger) 2>/dev/null || echo closed; ls /dev/vport* /dev/vd* 2>/dev/null"); got != "x\nclosed\nclosed\n" {
				t.Errorf("what can be written: %q", got)
			}
			if got := m.sh("dd if=/dev/zero of=/tmp/large bs=1M count=9 2>&1 | head -1"); !strings.Contains(got, "No space left") {
				t.Errorf("more than /tmp takes: %q", got)
			}
			posture(t, m.spec.ID)
			u, err := m.instance.Usage(t.Context())
			if err != nil || u.CPU == nil || u.Memory == nil {
				t.Errorf("its usage: %+v, %v", u, err)
			}
		})
	}
}

// posture looks at the monitor from outside: what code finds itself with that broke out of
// its machine.
func posture(t *testing.T, id string) {
	t.Helper()
	pid := monitorOf(t, id)
	if pid == "" {
		t.Fatal("there is no monitor")
	}
	confined(t, pid, "")
}

// confined says what of a monitor's confinement is missing. It may write to one place, which
// is a little memory.
func confined(t *testing.T, pid, writable string) {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nCapEff:\t0000000000000000\n", "\nCapBnd:\t0000000000000000\n", "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the monitor's status lacks %q:\n%s", want, status)
		}
	}
	if os.Geteuid() == 0 && strings.Contains(string(status), "\nUid:\t0\t") {
		t.Error("the monitor is this host's root")
	}
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc"} {
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		theirs, err2 := os.Readlink(filepath.Join("/proc", pid, "ns", ns))
		if errors.Join(err, err2) != nil || ours == theirs {
			t.Errorf("the monitor is in the namespace %s of its owner: %v", ours, errors.Join(err, err2))
		}
	}
	mounts, err := os.ReadFile(filepath.Join("/proc", pid, "mounts"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if rw := strings.HasPrefix(f[3], "rw"); rw && f[1] != "/proc" && !(f[1] == writable && strings.Contains(line, " tmpfs ") && strings.Contains(f[3], "size=64k,nr_inodes=8")) && f[1] != "/run/scratch" && !strings.HasPrefix(f[1], "/dev") {
			t.Errorf("the monitor can write to %s", line)
		}
	}
}

// The memory of a program that the agent has not started itself, and files in memory, of
// which the agent dies.
func TestMemoryLimit(t *testing.T) {
	for name, script := range map[string]string{"program": "dd if=/dev/zero of=/dev/null bs=300M count=1; exec sleep 10000", "files": "dd if=/dev/zero of=/dev/shm/big bs=1M count=160"} {
		t.Run(name, func(t *testing.T) {
			m := start(t, newDriver(t, microvm.Micro), newSpec(t, nil))
			_, err := m.client.Run(t.Context(), &sandbox.Exec{Argv: []string{"sh", "-c", script}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &bytes.Buffer{}})
			<-m.instance.Ended()
			if got := m.instance.Limit(); got != sandbox.LimitMemory {
				t.Errorf("it ended by %q, %v", got, err)
			}
		})
	}
}

// What stood still goes on, with the clock of the host: it was set to another one before.
func TestPause(t *testing.T) {
	m := start(t, newDriver(t, microvm.Micro), newSpec(t, nil))
	m.sh("echo before > /tmp/a")
	if err := microvm.Order(t.Context(), m.instance, boot.Order{Do: boot.Resume, Time: 1e18, Hostname: "other"}); err != nil {
		t.Fatal(err)
	}
	const now = "echo > /tmp/now && ls -l --time-style=+%Y /tmp/now | { read mode links user group size year name; echo $year; }; cat /proc/sys/kernel/hostname"
	if got := m.sh(now); got != "2001\nother\n" {
		t.Fatalf("what it was told: %q", got)
	}
	frozen(t, m)
	p := m.instance.(sandbox.Pauser)
	for range 2 {
		if err := p.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := p.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.sh("cat /tmp/a"); got != "before\n" {
		t.Errorf("after a pause: %q", got)
	}
	if got, want := m.sh(now), fmt.Sprintf("%d\nother\n", time.Now().UTC().Year()); got != want {
		t.Errorf("its year and name after a pause: %q, want %q", got, want)
	}
}

// frozen has what the sandbox runs stand still for a second, while the machine goes on.
func frozen(t *testing.T, m *machine) {
	t.Helper()
	m.sh("while [ ! -e /tmp/stop ]; do read up idle < /proc/uptime; echo $up >> /tmp/ups; done > /dev/null 2>&1 &")
	uptimes := func(file string) (all []float64) {
		for _, word := range strings.Fields(m.sh("cat " + file)) {
			up, err := strconv.ParseFloat(word, 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, up)
		}
		return all
	}
	after := func(began float64) (all []float64) {
		for t.Context().Err() == nil && (len(all) == 0 || all[len(all)-1] <= began) {
			all = uptimes("/tmp/ups")
		}
		return all
	}
	after(uptimes("/proc/uptime")[0])
	if err := microvm.Order(t.Context(), m.instance, boot.Order{Do: boot.Freeze, Within: time.Minute}); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Second)
	if err := microvm.Order(t.Context(), m.instance, boot.Order{Do: boot.Resume}); err != nil {
		t.Fatal(err)
	}
	longest, last := 0.0, math.Inf(1)
	for _, up := range after(uptimes("/proc/uptime")[0]) {
		longest, last = max(longest, up-last), up
	}
	if longest < 0.9 {
		t.Errorf("while it was to stand still it did something after %v s", longest)
	}
	m.sh("echo > /tmp/stop")
}

// A process that waits for a slow disk does not stand still. The others do, until they are
// told to go on.
func TestFreezeOfWhatWaits(t *testing.T) {
	m := start(t, newDriver(t, microvm.Micro), newSpec(t, func(s *sandbox.Spec) { s.Limits.IO = 256 << 10 }))
	m.sh("while [ ! -e /dev/shm/stop ]; do :; done > /dev/null 2>&1 &")
	m.sh("> /home/user/a; dd if=/dev/zero of=/home/user/a bs=1M count=8 conv=fsync > /dev/null 2>&1 &\n" +
		"while set -- $(ls -ln /home/user/a) && [ $5 -lt 8388608 ]; do :; done; while read pid comm state rest < /proc/$!/stat && [ $state != D ]; do :; done")
	err := microvm.Order(t.Context(), m.instance, boot.Order{Do: boot.Freeze, Within: time.Second})
	if err == nil || !strings.Contains(err.Error(), "does not stand still") {
		t.Errorf("it stands still: %v", err)
	}
	if err := microvm.Order(t.Context(), m.instance, boot.Order{Do: boot.Flush, Within: time.Millisecond}); err == nil {
		t.Error("all was written at once")
	}
	if err := microvm.Order(t.Context(), m.instance, boot.Order{Do: boot.Resume}); err != nil {
		t.Fatal(err)
	}
	m.sh("echo > /dev/shm/stop")
}

func TestRefusals(t *testing.T) {
	d := newDriver(t, microvm.Micro)
	for name, tt := range map[string]struct {
		change func(*sandbox.Spec)
		kind   error
		want   string
	}{
		"this host's files": {func(s *sandbox.Spec) { s.Root = sandbox.Root{} }, sandbox.ErrUnsupported, "does not show this host's files"},
		"a mount to write to": {func(s *sandbox.Spec) {
			s.Mounts = []sandbox.Mount{{Name: "a", Target: "/a", Access: sandbox.ReadWrite}}
		}, sandbox.ErrUnsupported, "gets copies of this host's files"},
		"a list of programs": {func(s *sandbox.Spec) { s.Executables = &sandbox.Executables{} }, sandbox.ErrUnsupported, "what is executed"},
		"few files on much":  {func(s *sandbox.Spec) { s.Limits.Disk, s.Limits.Inodes = 64<<30, 100 }, sandbox.ErrUnsupported, "as few as"},
		"no size":            {func(s *sandbox.Spec) { s.Limits.Memory = 0 }, sandbox.ErrUnsupported, "has a size"},
		"a name":             {func(s *sandbox.Spec) { s.User.Name = "a:b" }, sandbox.ErrInvalid, "no user's name"},
		"a place":            {func(s *sandbox.Spec) { s.Scratch[0].Target = "/a/../b" }, sandbox.ErrInvalid, "nothing can be placed"},
		"the kernel's view":  {func(s *sandbox.Spec) { s.Scratch[0].Target = "/proc/a" }, sandbox.ErrInvalid, "nothing can be placed"},
	} {
		s := newSpec(t, tt.change)
		_, err := d.Start(t.Context(), s)
		if !errors.Is(err, tt.kind) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %v %q", name, err, tt.kind, tt.want)
		}
		if left, err := os.ReadDir(s.StateDir); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", name, left, err)
		}
	}
}

// A guest that cannot make its sandbox says why, and nothing is left.
func TestGuestThatEnds(t *testing.T) {
	d := newDriver(t, microvm.Micro)
	broken := filepath.Join(t.TempDir(), "root.erofs")
	if err := os.WriteFile(broken, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(broken)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := newSpec(t, func(s *sandbox.Spec) { s.Root.Image = &sandbox.Image{Digest: s.Root.Image.Digest, EROFS: f} })
	_, err = d.Start(t.Context(), s)
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "mount erofs") {
		t.Errorf("%v", err)
	}
	if pid := monitorOf(t, s.ID); pid != "" {
		t.Errorf("the monitor still runs: %s", pid)
	}
}
