// SPDX-License-Identifier: Apache-2.0

package threads

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The monitor alone is slow, of which it says as much as the kernel.
func TestSlowMonitor(t *testing.T) {
	slackOf := func(tid string) string {
		b, err := os.ReadFile("/proc/" + tid + "/timerslack_ns")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	pid := os.Getpid()
	monitor := strconv.Itoa(pid + 1)
	_, missing := os.Stat("/proc/self/task/" + monitor)
	err := SlowMonitor(123_000)
	if missing != nil {
		if err == nil {
			t.Error("it made somebody else's thread slow")
		}
		return
	}
	if os.Geteuid() != 0 {
		if !errors.Is(err, syscall.EPERM) {
			t.Errorf("as an ordinary user: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	others, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		if got := slackOf(other.Name()); (got == "123000") != (other.Name() == monitor) {
			t.Errorf("thread %s of %d: %s", other.Name(), pid, got)
		}
	}
	if err := SlowMonitor(50_000); err != nil {
		t.Error(err)
	}
}
