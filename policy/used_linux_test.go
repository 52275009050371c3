// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"syscall"
	"testing"
	"time"
)

// used is the processor time of this process: however busy a machine is, others' is not in it.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
