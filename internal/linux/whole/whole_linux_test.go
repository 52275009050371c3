// SPDX-License-Identifier: Apache-2.0

package whole

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// The mark is not for users: it is taken off, and the kernel calls the process what it
// always has.
func TestArrive(t *testing.T) {
	runtime.LockOSThread() // for good: the thread has another name from here on
	was := os.Args[0]
	defer func() { os.Args[0] = was }()

	name := func() string {
		comm, err := os.ReadFile("/proc/thread-self/comm")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(comm))
	}
	before := name()
	os.Args[0] = "/usr/bin/caisson"
	if Arrive(); os.Args[0] != "/usr/bin/caisson" || name() != before {
		t.Errorf("without a mark: %s, %s", os.Args[0], name())
	}
	os.Args[0] = string(Mark) + "/usr/bin/caisson"
	if Arrive(); os.Args[0] != "/usr/bin/caisson" || name() != "caisson" {
		t.Errorf("with a mark: %s, %s", os.Args[0], name())
	}
}

// What has come by Exec does not do it again, and again.
func TestExecOnce(t *testing.T) {
	was := os.Args[0]
	defer func() { os.Args[0] = was }()
	os.Args[0] = string(Mark) + "caisson"
	if err := Exec(); err == nil {
		t.Error("there is no error")
	}
}
