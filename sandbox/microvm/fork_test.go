// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/process"
)

// A machine on the program that stands for Firecracker, and its copy: a program reads and
// writes while the machine is written down, and its session loses nothing of that.
func TestFirecrackerFork(t *testing.T) { fork(t, newFirecracker(t)) }

func fork(t *testing.T, d sandbox.Driver) {
	t.Helper()
	m := start(t, d, newSpec(t, func(s *sandbox.Spec) { s.Snapshots, s.Limits.CPUs = true, 1 }))
	m.sh("echo kept > /home/user/a")
	dir := t.TempDir()
	counted := counting(t, m, func() {
		if err := m.instance.(sandbox.Snapshotter).Snapshot(t.Context(), dir, false); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d numbers came back", counted)
	for _, name := range []string{"memory", "devices", "machine.json", "scratch"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != 0o600 || info.Size() == 0 {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	c := start(t, restored{d, dir}, again(t, m.spec, "other"))
	if got := c.sh("cat /home/user/a /proc/sys/kernel/hostname"); got != "kept\nother\n" {
		t.Errorf("the copy has %q", got)
	}
	shown(t, c.spec.ID, filepath.Join(dir, "memory"), "/run/written.memory", false)
	shown(t, c.spec.ID, filepath.Join(c.spec.StateDir, "memory"), "/run/memory", true)
	if got := m.sh("cat /proc/sys/kernel/hostname"); got != "sandbox\n" {
		t.Errorf("the first one is called %q", got)
	}
}

// counting sends numbers to a program that sends them back, both as fast as they can, does
// something meanwhile, and looks whether each of them came.
func counting(t *testing.T, m *machine, do func()) (last int) {
	t.Helper()
	back, there := &sequence{}, &numbers{}
	began := back.more(1000)
	ended := make(chan error, 1)
	go func() {
		x := shell("exec cat")
		x.Stdin, x.Stdout = there, back
		_, err := m.client.Run(t.Context(), x)
		ended <- err
	}()
	<-began
	do()
	<-back.more(1000)
	there.over.Store(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if back.wrong != "" || back.last != there.last {
		t.Errorf("a session that goes on has lost something: %d of %d numbers, and %s", back.last, there.last, back.wrong)
	}
	return back.last
}

// shown says whether a monitor sees the very file, and may write to it.
func shown(t *testing.T, id, file, at string, writes bool) {
	t.Helper()
	pid := monitorOf(t, id)
	var ours, theirs unix.Stat_t
	err := errors.Join(unix.Stat(file, &ours), unix.Stat(filepath.Join("/proc", pid, "root", at), &theirs))
	if err != nil || ours.Ino != theirs.Ino || ours.Dev != theirs.Dev {
		t.Errorf("%s is not %s: %v", at, file, err)
	}
	mounts, err := os.ReadFile(filepath.Join("/proc", pid, "mounts"))
	if err != nil || !strings.Contains(string(mounts), " "+at+" ") {
		t.Errorf("%s is not mounted: %v", at, err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[1] == at && strings.HasPrefix(f[3], "rw") != writes {
			t.Errorf("it may write there: %v, in %s", !writes, line)
		}
	}
}

// Which monitor goes on with a machine says what it was written down by.
func TestMonitorOfSnapshot(t *testing.T) {
	program := filepath.Join(t.TempDir(), "firecracker")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const mark = `"mark": "` + "5555555555555555555555555555555555555555555555555555555555555555" + `"`
	for name, tt := range map[string]struct {
		told, variant string
		here          bool // Firecracker
		want, why     string
		passes        bool // it may fit later
	}{
		"Firecracker's":                {told: `"kind": "Firecracker"`, here: true, want: "Firecracker"},
		"QEMU's":                       {told: `"kind": "QEMU"`, here: true, want: "QEMU"},
		"from before there was a kind": {told: `"level": "microvm"`, here: true, want: "QEMU"},
		"Firecracker's, which is gone": {told: `"kind": "Firecracker"`, why: "by Firecracker, and", passes: true},
		"another's":                    {told: `"kind": "other"`, here: true, why: "another machine monitor"},
		"on the other one, by name":    {told: `"kind": "QEMU"`, variant: "firecracker", here: true, why: "another machine monitor"},
		"Firecracker's, on QEMU":       {told: `"kind": "Firecracker"`, variant: "qemu", here: true, why: "another machine monitor"},
		"files, of one that is gone":   {told: `"kind": "Firecracker", "files": true`, want: "QEMU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "/nothing")
			t.Setenv("CAISSON_QEMU", program)
			t.Setenv("CAISSON_FIRECRACKER", map[bool]string{true: program}[tt.here])
			dir := t.TempDir()
			err := errors.Join(os.WriteFile(filepath.Join(dir, "machine.json"), []byte("{"+mark+", "+tt.told+"}"), 0o600), os.WriteFile(filepath.Join(dir, "memory"), nil, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			var d sandbox.Driver = microvm.New(microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{}), Kernels: t.TempDir()})
			if tt.variant != "" {
				d = d.(sandbox.Varied).Variant(tt.variant)
			}
			got, err := microvm.MonitorOf(d, dir)
			if got != tt.want || (err == nil) != (tt.why == "") || err != nil && (errors.Is(err, sandbox.ErrMisfit) == tt.passes || !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), tt.why)) {
				t.Errorf("%q, %v; want %q, %q", got, err, tt.want, tt.why)
			}
		})
	}
}

// A machine goes on with the monitor that has written it down, whichever is taken for new ones.
func TestRestorePicksItsMonitor(t *testing.T) {
	if testing.Short() {
		t.Skip("it boots a machine for each monitor: make test-vm")
	}
	needQEMU(t)
	newFirecracker(t) // names it
	either := func(firecrackerFirst bool) sandbox.Driver {
		return microvm.NewEither(microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{TAP: true}), Kernels: kernelStore(t)}, 512<<20, firecrackerFirst)
	}
	for _, firecracker := range []bool{true, false} {
		t.Run(fmt.Sprintf("firecracker %v", firecracker), func(t *testing.T) {
			m := start(t, either(firecracker), newSpec(t, func(s *sandbox.Spec) { s.Snapshots, s.Limits.CPUs = true, 1 }))
			m.sh("echo kept > /home/user/a")
			dir := t.TempDir()
			if err := m.instance.(sandbox.Snapshotter).Snapshot(t.Context(), dir, true); err != nil {
				t.Fatal(err)
			}
			c := start(t, restored{either(!firecracker), dir}, again(t, m.spec, "other"))
			if got := c.sh("cat /home/user/a"); got != "kept\n" {
				t.Errorf("it has %q", got)
			}
			if is := processOf(t, "/run/firecracker\x00", "\x00"+strings.ReplaceAll(c.spec.ID, "_", "-")+"\x00") != ""; is != firecracker {
				t.Errorf("its monitor is Firecracker: %v", is)
			}
			if !firecracker {
				return
			}
			t.Setenv("CAISSON_FIRECRACKER", "/nothing")
			_, err := either(false).(sandbox.Restorer).Restore(t.Context(), again(t, m.spec, "gone"), dir)
			if !errors.Is(err, sandbox.ErrUnsupported) || errors.Is(err, sandbox.ErrMisfit) || !strings.Contains(fmt.Sprint(err), "names no file") {
				t.Errorf("without its monitor: %v", err)
			}
		})
	}
}
