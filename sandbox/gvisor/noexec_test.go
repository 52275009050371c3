// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// TestStateOnOddMounts runs TestStateOnOddMountsInside in a mount namespace of its own,
// as the user it is run by.
func TestStateOnOddMounts(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestStateOnOddMountsInside$", "-test.v")
	cmd.Env = append(os.Environ(), "CAISSON_IN_NAMESPACE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestStateOnOddMountsInside") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestStateOnOddMountsInside has the state directory, the root's tree and what is
// mounted below a mount that is noexec, and below /run, where the shim has its stage.
func TestStateOnOddMountsInside(t *testing.T) {
	if os.Getenv("CAISSON_IN_NAMESPACE") == "" {
		return // TestStateOnOddMounts calls it
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	// A disk: not every kernel translates owners on a tmpfs.
	bind := func(t *testing.T, on string, attributes uint64) {
		t.Helper()
		dir := t.TempDir()
		if on == "" {
			on = dir
		}
		if err := unix.Mount(dir, on, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(on, unix.MNT_DETACH) })
		if err := unix.MountSetattr(unix.AT_FDCWD, on, 0, &unix.MountAttr{Attr_set: attributes}); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", on)
	}
	works := func(t *testing.T) {
		t.Run("mounts", TestMounts)
		t.Run("root of its own", TestOneFileAlone)
		t.Run("masks", TestMasks)
		t.Run("image", func(t *testing.T) {
			spec := fixture(t)
			spec.Root = imageRoot(t)
			if got := sh(t, spec, "echo here"); got != "here\n" {
				t.Errorf("it says %q", got)
			}
		})
		t.Run("programs", func(t *testing.T) {
			spec, dir := fixture(t), project(t)
			const own = `for d in /home/user /tmp /home/user/p; do cp /usr/bin/id $d/mine && $d/mine -u; done`
			spec.Mounts = []sandbox.Mount{{Source: handle(t, dir), Name: dir, Target: "/home/user/p", Access: sandbox.CopyOnWrite, Dir: true}}
			if got := sh(t, spec, own); got != "1000\n1000\n1000\n" {
				t.Errorf("beside a copy-on-write mount: %q", got)
			}
			if got := sh(t, fixture(t), `mkdir p; `+own); got != "1000\n1000\n1000\n" {
				t.Errorf("without: %q", got)
			}
		})
		t.Run("snapshot", goesOn)
	}
	t.Run("noexec", func(t *testing.T) {
		bind(t, "", unix.MOUNT_ATTR_NOEXEC)
		if os.Geteuid() == 0 {
			works(t)
			return
		}
		t.Run("tree", func(t *testing.T) { refused(t, fixture(t)) })
		t.Run("image", func(t *testing.T) {
			spec := fixture(t)
			spec.Root = imageRoot(t)
			refused(t, spec)
		})
	})
	t.Run("run", func(t *testing.T) {
		bind(t, "/run", 0)
		works(t)
	})
	if os.Geteuid() != 0 {
		return // what is noexec is refused, wherever it is
	}
	t.Run("noexec run", func(t *testing.T) { // as Debian's initramfs mounts it
		bind(t, "/run", unix.MOUNT_ATTR_NOEXEC)
		works(t)
	})
}

// refused wants spec refused with a sentence, before anything is made.
func refused(t *testing.T, spec *sandbox.Spec) {
	_, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"true"}, Dir: "/"})
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), " "+os.Getenv("TMPDIR")+", which is mounted noexec") ||
		!strings.Contains(sandbox.Hint(err), "CAISSON_STATE") {
		t.Errorf("got %v (hint %q)", err, sandbox.Hint(err))
	}
	if left, err := os.ReadDir(spec.StateDir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// goesOn writes a sandbox down and has it go on, in directories beside each other.
func goesOn(t *testing.T) {
	spec := fixture(t)
	spec.Snapshots = true
	c, box := living(t, spec, guest.Options{User: spec.User})
	if got := says(t, c, "echo kept > /home/user/file"); got != "" {
		t.Errorf("it says %q", got)
	}
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := box.(sandbox.Snapshotter).Snapshot(t.Context(), dir, true); err != nil {
		t.Fatal(err)
	}
	spec = fixture(t)
	spec.Snapshots = true
	again, err := gvisor.New(gvisor.Options{}).Restore(t.Context(), spec, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Destroy(t.Context())
	conn, err := again.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c, err = guest.NewClient(conn, guest.Options{User: spec.User}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := says(t, c, "cat /home/user/file"); got != "kept\n" {
		t.Errorf("after: %q", got)
	}
}
