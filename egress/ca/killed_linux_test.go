// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// Who is killed while the authority is renewed leaves no key under another name.
func TestKilledWhileItIsRenewed(t *testing.T) {
	const where = "CAISSON_TEST_DIR"
	now := time.Now()
	dir := os.Getenv(where)
	if dir == "" {
		dir = t.TempDir()
		if _, err := Open(dir, now); err != nil {
			t.Fatal(err)
		}
	}
	if drivertest.Killed(t, []string{where + "=" + dir}, unix.SYS_FSYNC) {
		_, err := Open(dir, now.Add(life-reserve+time.Hour))
		t.Fatalf("it is renewed: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := read(dir + "/" + fileName); err != nil {
		t.Error(err)
	}
}
