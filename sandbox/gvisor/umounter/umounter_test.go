// SPDX-License-Identifier: Apache-2.0

//go:build linux

package umounter

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

func TestWanted(t *testing.T) {
	for _, tc := range []struct {
		argv string
		want bool
	}{
		{"/proc/self/exe umount --sync-fd=3 /proc", true},
		{"caisson umount --sync-fd=3 /proc", false},
		{"/proc/self/exe run --sync-fd=3 /proc", false},
		{"/proc/self/exe umount --sync-fd=-1 /proc", false},
		{"/proc/self/exe umount --sync-fd=x /proc", false},
		{"/proc/self/exe umount 3 /proc", false},
		{"/proc/self/exe umount --sync-fd=3 proc", false},
		{"/proc/self/exe umount --sync-fd=3", false},
		{"/proc/self/exe", false},
	} {
		if _, _, ok := wanted(strings.Fields(tc.argv)); ok != tc.want {
			t.Errorf("wanted(%q) = %v", tc.argv, ok)
		}
	}
	if _, _, ok := wanted(nil); ok {
		t.Error("no arguments are wanted")
	}
}

// TestUmounts starts this binary as gVisor does and looks whether the mount is
// there before the byte and gone after it.
func TestUmounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace to unmount in needs root")
	}
	dir := t.TempDir()
	if err := threads.Ending(func() error { return inNamespace(dir) }); err != nil {
		t.Fatal(err)
	}
}

func inNamespace(dir string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS | syscall.CLONE_FS); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("t", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/mark", nil, 0o600); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"/proc/self/exe", "umount", "--sync-fd=3", dir}, ExtraFiles: []*os.File{r}, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.Close()
	if _, err := os.Stat(dir + "/mark"); err != nil {
		return err
	}
	if _, err := w.Write([]byte{0}); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	if _, err := os.Stat(dir + "/mark"); !os.IsNotExist(err) {
		return os.ErrExist
	}
	return nil
}
