// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox/process"
)

// What lies under the root of root's sandboxes, where only a process with rights
// over their mounts could look, has nothing of the host's: no file, no process.
func TestNothingLiesUnderTheRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: an ordinary user's sandboxes have nothing there at all")
	}
	if !process.WaitForStage() {
		t.Fatal("this host lets no stage be made")
	}
	d, spec := process.New(process.Options{}), fixture(t)
	before := children(t) // of tests before this one, which may still be ending
	i, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Destroy(t.Context())
	// The builder may still be ending: it is in the sandbox's mounts, and in our pid
	// namespace.
	pids := slices.DeleteFunc(children(t), func(pid int) bool {
		return slices.Contains(before, pid) || !elsewhere(pid, "mnt") || !elsewhere(pid, "pid")
	})
	if len(pids) == 0 {
		t.Fatal("the sandbox has no process")
	}
	pid := strconv.Itoa(pids[0])
	// Nor does it let a process that has got a user namespace of its own, where what
	// hides parts of /proc cannot be taken off, mount another one.
	nested := []string{"nsenter", "-t", pid, "-U", "-m", "-p", "--", "unshare", "-U", "-r", "-m", "-p", "-f", "--"}
	for argv, want := range map[string]bool{"mount -t tmpfs x /tmp": true, "mount -t proc x /tmp": false} {
		out, err := exec.Command(nested[0], append(nested[1:], strings.Fields(argv)...)...).CombinedOutput()
		if (err == nil) != want {
			t.Errorf("%s: %v, %s", argv, err, out)
		}
	}
	if err := threads.Ending(func() error { return lookUnder(pid) }); err != nil {
		t.Error(err)
	}
}

// elsewhere reports whether a process lives, in another namespace than ours.
func elsewhere(pid int, kind string) bool {
	own, err := os.Readlink("/proc/self/ns/" + kind)
	ns, gone := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	return err == nil && gone == nil && ns != own
}

// lookUnder takes the root of a process off.
func lookUnder(pid string) error {
	host, err := unix.Open("/proc", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(host)
	ns, err := unix.Open("/proc/"+pid+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Unmount("/", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("its root: %w", err)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil { // to what is the root now
		return err
	}
	fd, err := unix.Openat(host, "thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 64<<10)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return err
	}
	var mounts []string
	for line := range strings.Lines(string(buf[:n])) {
		f := strings.Fields(line)
		rest := f[slices.Index(f, "-")+1:]
		mounts = append(mounts, f[4]+" "+rest[0]+" "+f[5])
	}
	if want := []string{"/ tmpfs ro,nosuid,nodev,noexec,relatime", "/proc proc rw,nosuid,nodev,noexec,relatime",
		"/proc tmpfs ro,nosuid,nodev,noexec,relatime"}; !slices.Equal(mounts, want) {
		return fmt.Errorf("mounted are %q, want %q", mounts, want)
	}
	list, err := os.ReadDir("/")
	if err != nil || len(list) != 1 || list[0].Name() != "proc" {
		return fmt.Errorf("%v lie there: %w", list, err)
	}
	if list, err = os.ReadDir("/proc"); !errors.Is(err, unix.ENOENT) || len(list) > 0 { // it is removed
		return fmt.Errorf("%v lie in /proc: %w", list, err)
	}
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil {
		return err
	}
	if list, err = os.ReadDir("/proc"); err != nil {
		return err
	}
	for _, e := range list {
		if name := e.Name(); name[0] >= '0' && name[0] <= '9' {
			return fmt.Errorf("process %s of the host is in the /proc under that", name)
		}
	}
	return nil
}
