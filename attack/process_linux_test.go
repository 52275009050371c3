// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Who has ended is in no control group that could be judged, and neither is who has
// ended but was not waited for: version 1 shows its root.
func TestEnding(t *testing.T) {
	if ending(os.Getpid()) {
		t.Error("this process is said to end")
	}
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if p, err := stat(pid); err != nil || p.look() == nil || !ending(pid) {
		t.Errorf("a zombie is looked at: %+v, %v", p, err)
	}
	if err := cmd.Wait(); err != nil || !ending(pid) {
		t.Errorf("one that is gone: %v", err)
	}
}
