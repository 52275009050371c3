// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// Who is killed while a pin is approved leaves the one there was, and nothing else.
func TestKilledWhileItIsApproved(t *testing.T) {
	const where = "CAISSON_TEST_DIR"
	p := &Pins{Dir: os.Getenv(where)}
	if p.Dir == "" {
		p.Dir = t.TempDir()
		if _, err := p.First(&Pin{Server: "s", Image: "old"}); err != nil {
			t.Fatal(err)
		}
	}
	if drivertest.Killed(t, []string{where + "=" + p.Dir}, unix.SYS_FSYNC) {
		t.Fatalf("it is approved: %v", p.Approve(&Pin{Server: "s", Image: "old"}))
	}
	if left, err := os.ReadDir(p.Dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
	if pin, err := p.Read("s", "old", nil); err != nil || pin == nil {
		t.Errorf("%v, %v", pin, err)
	}
}
