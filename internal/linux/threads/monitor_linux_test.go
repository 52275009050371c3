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

// The monitor is slow and the others are not, of which it says as much as the kernel.
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
	if first, late := slackOf(strconv.Itoa(pid)), slackOf(monitor); late != "123000" || first == late {
		t.Errorf("the first thread of %d has %s, the monitor %s", pid, first, late)
	}
	if err := SlowMonitor(50_000); err != nil {
		t.Error(err)
	}
}
