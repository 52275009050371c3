// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// stuck says where the owner of a sandbox that hangs has its directory.
const stuck = "CAISSON_TEST_STUCK"

// TestStuckOwner is what TestStuckAsNobody kills: no signal may wait for it or for what it
// starts, and gVisor's gofer and sentry wait for their threads for ever.
func TestStuckOwner(t *testing.T) {
	dir := os.Getenv(stuck)
	if dir == "" {
		return
	}
	spec := fixture(t)
	spec.StateDir = dir
	if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &unix.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	gvisor.HaveRoom()
	res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"true"}, Dir: "/", Env: []string{"PATH=/bin"}})
	t.Errorf("it does not hang: %v, %v", res, err)
}

func TestNoRoomAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestNoRoom") }

// Where they would wait so, nothing is begun, and it is said what to do.
func TestNoRoom(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs an ordinary user: root's gofer and sentry do not hang in this way")
	}
	spec := fixture(t)
	var has unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &has); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &unix.Rlimit{Max: has.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &has); err != nil {
			t.Error(err)
		}
	})
	res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"true"}, Dir: "/", Env: []string{"PATH=/bin"}})
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "signals") || !strings.Contains(sandbox.Hint(err), "ulimit -i") {
		t.Errorf("got %v, %v (hint %q)", res, err, sandbox.Hint(err))
	}
}

func TestStuckAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestStuck") }

// A sandbox that hangs while it is made, and whose owner is gone, goes with everything
// that was made of it.
func TestStuck(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs an ordinary user: root's gofer and sentry do not hang in this way")
	}
	dir := t.TempDir() + "/state"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	owner := exec.Command("/proc/self/exe", "-test.run=^TestStuckOwner$")
	owner.Env = append(os.Environ(), stuck+"="+dir, "TMPDIR="+t.TempDir()) // it does not take away its own
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var shims, sentries []int
	for len(sentries) == 0 && t.Context().Err() == nil {
		if shims = descendants(t, owner.Process.Pid, "caisson-shim"); len(shims) == 1 {
			sentries = descendants(t, shims[0], "runsc-sandbox")
		}
	}
	if err := errors.Join(owner.Process.Kill(), owner.Wait()); err == nil {
		t.Error("the owner ended by itself")
	}
	for _, pid := range append(shims, sentries...) {
		await(t, pid)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}

// await waits until a process has ended.
func await(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			_ = unix.Kill(pid, unix.SIGKILL)
			t.Errorf("%.40q is still there (%v)", line, err)
			return
		default:
			return
		}
	}
}
