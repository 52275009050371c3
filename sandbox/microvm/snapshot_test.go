// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// again is the world of s for another machine.
func again(t testing.TB, s *sandbox.Spec, hostname string) *sandbox.Spec {
	t.Helper()
	other := *s
	other.ID, other.Hostname, other.MachineID, other.StateDir = "sbx_vm"+rand.Text(), hostname, strings.Repeat("5", 32), filepath.Join(filepath.Dir(s.StateDir), hostname)
	if err := os.Mkdir(other.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &other
}

// restored is a driver that starts machines by going on from a directory.
type restored struct {
	sandbox.Driver
	dir string
}

// drawing draws random numbers, and notes each with the name that the machine had before:
// which is another one in a copy, before it draws anything there.
const drawing = `while [ ! -e /tmp/stop ]; do read name < /proc/sys/kernel/hostname; draw=$(head -c 8 /dev/urandom | od -An -tx1); echo "$name$draw" >> /tmp/drawn; done > /dev/null 2>&1 &`

// firstDraws are the first numbers that a machine of that name has drawn.
func (m *machine) firstDraws(name string) []string {
	m.Helper()
	for m.Context().Err() == nil {
		var draws []string
		for line := range strings.Lines(m.sh("cat /tmp/drawn")) {
			if of, draw, found := strings.Cut(strings.TrimSuffix(line, "\n"), " "); found && of == name {
				draws = append(draws, draw)
			}
		}
		if len(draws) >= 4 {
			return draws[:4]
		}
	}
	m.Fatal(m.Context().Err())
	return nil
}

// TestSnapshot writes a machine down and goes on with it: itself, and two copies, which
// have names and random numbers of their own from the first moment on.
func TestSnapshot(t *testing.T) { snapshotOf(t, newDriver(t, microvm.Micro)) }

// On the program that stands for Firecracker. What a machine writes down is told by a session
// that goes on over it, which its connection does not.
func TestFirecrackerSnapshot(t *testing.T) {
	if testing.Short() {
		t.Skip("TestFirecrackerFork writes one down: make test-vm")
	}
	snapshotOf(t, newFirecracker(t))
}

func snapshotOf(t *testing.T, d sandbox.Driver) {
	goroutines := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, goroutines) })
	// With one processor copies would draw the same: there is one order to draw in.
	host := hostDir(t)
	m := start(t, d, newSpec(t, func(s *sandbox.Spec) {
		s.Snapshots, s.Limits.CPUs = true, 1
		s.Mounts = []sandbox.Mount{source(t, host, "/cow", sandbox.CopyOnWrite), source(t, filepath.Join(host, "a"), "/home/user/two", sandbox.CopyOnWrite)}
	}))
	if got := m.sh("cat /etc/hostname"); got != "sandbox\n" {
		t.Errorf("its root calls it %q", got)
	}
	m.sh("echo kept > /home/user/a; " + drawing)
	m.firstDraws("sandbox")
	dir, began := t.TempDir(), time.Now()
	if err := m.instance.(sandbox.Snapshotter).Snapshot(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
	t.Logf("it was written down, and went on, within %v", time.Since(began).Round(10*time.Millisecond))
	m.sh("echo changed > /home/user/a; echo > /tmp/stop")
	drawn := map[string]string{}
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			c := start(t, restored{d, dir}, again(t, m.spec, name))
			for _, draw := range c.firstDraws(name) {
				if of := drawn[draw]; of != "" {
					t.Errorf("it draws what %s has drawn: %s", of, draw)
				}
				drawn[draw] = name
			}
			if got := c.sh("cat /home/user/a /cow/a /etc/hostname; echo " + name + " > /home/user/a"); got != "kept\ntext\n"+name+"\n" {
				t.Errorf("it has %q", got)
			}
		})
	}
	if got := m.sh("cat /home/user/a"); got != "changed\n" {
		t.Errorf("it has %q", got)
	}
	t.Run("paused", func(t *testing.T) { snapshotPaused(t, m) })
	t.Run("full disk", func(t *testing.T) { snapshotFull(t, m) })
	t.Run("refused", func(t *testing.T) { refusedSnapshots(t, d, m.spec, dir) })
	t.Run("files", func(t *testing.T) { snapshotFiles(t, d, m) })
}

// snapshotFiles begins anew with what a machine, which has ended by then, had on its disks.
func snapshotFiles(t *testing.T, d sandbox.Driver, m *machine) {
	const boot = "cat /proc/sys/kernel/random/boot_id"
	m.sh("echo x > /cow/a; echo y > /cow/new; rm /cow/inner; echo z > /home/user/two")
	first, dir := m.sh(boot), t.TempDir()
	if err := m.instance.(sandbox.FileSnapshotter).SnapshotFiles(t.Context(), dir, true); err != nil {
		t.Fatal(err)
	}
	if err := m.instance.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := start(t, restored{d, dir}, again(t, m.spec, "files"))
	if got := c.sh("cat /home/user/a /cow/a /cow/new /home/user/two; cat /cow/inner 2>/dev/null || echo gone; cat /proc/sys/kernel/hostname"); got != "changed\nx\ny\nz\ngone\nfiles\n" {
		t.Errorf("what was on its disks: %q", got)
	}
	if got := c.sh(boot); got == first {
		t.Errorf("it has not begun anew: %s", got)
	}
	fewer := again(t, m.spec, "fewer")
	fewer.Mounts = nil
	if _, err := d.(sandbox.Restorer).Restore(t.Context(), fewer, dir); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("with fewer directories: %v", err)
	}
}

// Start implements sandbox.Driver.
func (r restored) Start(ctx context.Context, s *sandbox.Spec) (sandbox.Instance, error) {
	return r.Driver.(sandbox.Restorer).Restore(ctx, s, r.dir)
}

// snapshotPaused writes a machine down twice that stands still, and goes on standing.
func snapshotPaused(t *testing.T, m *machine) {
	if err := m.instance.(sandbox.Pauser).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		dir := t.TempDir()
		if err := m.instance.(sandbox.Snapshotter).Snapshot(t.Context(), dir, false); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "memory"))
		if err == nil {
			t.Logf("%d MiB", info.Size()>>20)
		}
		if err != nil || info.Size() < 16<<20 || info.Mode() != 0o600 {
			t.Errorf("its memory: %+v, %v", info, err)
		}
	}
	if err := m.instance.(sandbox.Pauser).Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.sh("echo it goes on")
}

// snapshotFull has no room for a machine, which goes on.
func snapshotFull(t *testing.T, m *machine) {
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("needs a disk that is full: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	err := m.instance.(sandbox.Snapshotter).Snapshot(t.Context(), dir, false)
	if !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	m.sh("echo it goes on")
}

// refusedSnapshots: what does not fit, and what is not what was written, is refused by a sentence, and
// leaves no monitor.
func refusedSnapshots(t *testing.T, d sandbox.Driver, s *sandbox.Spec, dir string) {
	memory, err := os.ReadFile(filepath.Join(dir, "memory"))
	if err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(filepath.Join(dir, "machine.json"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(memory)
	flipped[len(flipped)/2] ^= 1
	noMachine := "machine monitor ended"
	devices, err := os.ReadFile(filepath.Join(dir, "devices"))
	if err == nil { // Firecracker reads neither before caisson has
		noMachine = "not as it was written"
	} else if !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		memory []byte
		told   string
		change func(*sandbox.Spec)
		kind   error
		want   string
	}{
		"cut":                 {memory: memory[:len(memory)/2], kind: sandbox.ErrMisfit, want: "not on the disk as it was written"},
		"changed":             {memory: flipped, kind: sandbox.ErrMisfit, want: "not as it was written"},
		"no machine":          {memory: make([]byte, len(memory)), kind: sandbox.ErrMisfit, want: noMachine},
		"nonsense":            {told: "]", kind: sandbox.ErrMisfit, want: "machine.json is not on the disk as it was written"},
		"another monitor":     {told: strings.Replace(string(told), `"monitor":"`, `"monitor":"1`, 1), kind: sandbox.ErrMisfit, want: "another version of the machine monitor"},
		"another kernel":      {told: strings.Replace(string(told), `"boot":"initrd-`, `"boot":"initrd-1`, 1), kind: sandbox.ErrMisfit, want: "another kernel"},
		"a machine of a size": {change: func(s *sandbox.Spec) { s.Limits.Memory += 1 << 20 }, kind: sandbox.ErrMisfit, want: "another size"},
	} {
		at := t.TempDir()
		if tt.memory == nil {
			tt.memory = memory
		}
		if tt.told == "" {
			tt.told = string(told)
		}
		err := errors.Join(os.WriteFile(filepath.Join(at, "memory"), tt.memory, 0o600), os.WriteFile(filepath.Join(at, "machine.json"), []byte(tt.told), 0o600),
			os.Link(filepath.Join(dir, "copies"), filepath.Join(at, "copies")), os.Link(filepath.Join(dir, "scratch"), filepath.Join(at, "scratch")))
		if devices != nil {
			err = errors.Join(err, os.WriteFile(filepath.Join(at, "devices"), devices, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		spec := again(t, s, strings.ReplaceAll(name, " ", "-"))
		if tt.change != nil {
			tt.change(spec)
		}
		_, err = d.(sandbox.Restorer).Restore(t.Context(), spec, at)
		if !errors.Is(err, tt.kind) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %v %q", name, err, tt.kind, tt.want)
		}
		if pid := monitorOf(t, spec.ID); pid != "" {
			t.Errorf("%s: the monitor still runs: %s", name, pid)
		}
		if left, err := os.ReadDir(spec.StateDir); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", name, left, err)
		}
	}
}
