// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// TestDisk: scratch is on a disk, within the memory limit and without filling it; its bounds
// are exact, and what a run wrote is nowhere in the next.
func TestDisk(t *testing.T) {
	m := start(t, newDriver(t, microvm.Micro), newSpec(t, func(s *sandbox.Spec) {
		s.Limits.Disk, s.Limits.Inodes = 400<<20, 200
		s.Scratch = append(s.Scratch, sandbox.Scratch{Target: "/srv/more", Size: 4 << 20, Inodes: 50})
	}))
	file := filepath.Join(m.spec.StateDir, "scratch")
	used := func() int64 {
		var st unix.Stat_t
		if err := unix.Stat(file, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n := used(); n > 8<<20 {
		t.Errorf("an empty disk takes %d bytes", n)
	}
	if got := m.sh("dd if=/dev/zero of=/home/user/big bs=1M count=160 2>/dev/null && echo written"); got != "written\n" {
		t.Errorf("more than the memory limit, to the disk: %q", got)
	}
	if got := m.sh("df -P /srv/more | { read a; read a b c free e; echo $free; }; ls -ld /srv/more"); !strings.HasPrefix(got, "4096\ndrwxr-xr-x ") {
		t.Errorf("room in 4 MiB: %q", got)
	}
	// A file that lies in more than four pieces has a block that says where they are.
	switch got := m.sh("dd if=/dev/zero of=/srv/more/big bs=4096 2>&1 | head -3; ls -ln /srv/more/big | { read a b c d size f; echo $size; }"); {
	case !strings.Contains(got, "No space left"):
		t.Errorf("4 MiB took %q", got)
	case !strings.HasSuffix(got, "\n4194304\n") && !strings.HasSuffix(got, "\n4190208\n"):
		t.Errorf("4 MiB took %q", got)
	}
	if got := m.sh("rm /srv/more/big; i=0; while (: > /srv/more/$i) 2>/dev/null; do i=$((i+1)); done; echo $i"); got != "50\n" {
		t.Errorf("files within a bound of 50: %q", got)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the disk on the host: %v, %v", info, err)
	}
	limits, err := os.ReadFile(filepath.Join("/proc", monitorOf(t, m.spec.ID), "limits"))
	if err != nil {
		t.Fatal(err)
	}
	if longest := regexp.MustCompile(`Max file size +([0-9]+) +([0-9]+) `).FindSubmatch(limits); longest == nil || string(longest[2]) != strconv.FormatInt(info.Size(), 10) {
		t.Errorf("the monitor can make files longer than the disk of %d bytes: %q", info.Size(), longest)
	}
}

// TestFullHost: a machine whose disk the host has no room for ends, and it is said why.
func TestFullHost(t *testing.T) {
	m := start(t, newDriver(t, microvm.Micro), newSpec(t, func(s *sandbox.Spec) {
		if err := unix.Mount("small", s.StateDir, "tmpfs", 0, "size=12m,mode=0700"); err != nil {
			t.Skipf("needs a disk that is full: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(s.StateDir, 0); err != nil {
				t.Error(err)
			}
		})
	}))
	_, err := m.client.Run(t.Context(), &sandbox.Exec{Argv: []string{"sh", "-c", "dd if=/dev/zero of=/home/user/big bs=1M count=60 conv=fsync"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}})
	select {
	case <-m.instance.Ended():
	case <-t.Context().Done():
		t.Fatal(err)
	}
	if why := m.instance.(sandbox.Failer).Failure(); !errors.Is(why, sandbox.ErrUnavailable) || !strings.Contains(why.Error(), "host's disk") || m.instance.Limit() != "" {
		t.Errorf("it ended by %q: %v, and the program by %v", m.instance.Limit(), why, err)
	}
}

// TestRates: every disk of a machine has a part in the one rate.
func TestRates(t *testing.T) {
	argv := microvm.QEMUArgv(&sandbox.Spec{
		ID: "sbx_rates", Limits: sandbox.Limits{Memory: 64 << 20, IO: 3 << 20, IOPS: 70},
		Mounts: []sandbox.Mount{{Target: "/a"}}, Scratch: []sandbox.Scratch{{Target: "/tmp", Size: 1 << 20}},
	}, false)
	drives := 0
	for _, a := range argv {
		if !strings.Contains(a, "if=none") {
			continue
		}
		drives++
		if !strings.HasSuffix(a, ",throttling.group=io,throttling.bps-read=3145728,throttling.bps-write=3145728,throttling.iops-read=70,throttling.iops-write=70") {
			t.Errorf("no rate: %s", a)
		}
	}
	if drives != 3 {
		t.Errorf("%d disks in %q", drives, argv)
	}
}
