// SPDX-License-Identifier: Apache-2.0

package threads_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// slack is a system call that each thread answers for itself.
func slack() syscall.Errno {
	_, _, err := threads.Call(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 60_000, 0)
	return err
}

func TestCall(t *testing.T) {
	if err := slack(); err != 0 {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	if os.Geteuid() != 0 {
		return // whom the kernel does not tell
	}
	for _, task := range tasks {
		now, err := os.ReadFile("/proc/" + task.Name() + "/timerslack_ns")
		if err == nil && string(now) != "60000\n" {
			t.Errorf("thread %s has %q", task.Name(), now)
		}
	}
}

// Whose user has no signal left is told so, and does not wait for ever.
func TestNoRoom(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestNoRoomInside$", "-test.v")
	cmd.Env = append(os.Environ(), "CAISSON_NO_SIGNALS=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestNoRoomInside")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestNoRoomInside(t *testing.T) {
	if os.Getenv("CAISSON_NO_SIGNALS") == "" {
		return // TestNoRoom calls it
	}
	if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &unix.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	if err := slack(); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("%v", err)
	}
}

// Where it cannot be told how much room there is, there is some.
func TestNoTimers(t *testing.T) {
	if !drivertest.Refused(t, unix.SYS_TIMER_CREATE) {
		return
	}
	if !threads.Room() {
		t.Error("there is no room")
	}
}

func BenchmarkCall(b *testing.B) {
	for b.Loop() {
		slack()
	}
}
