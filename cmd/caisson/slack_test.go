// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
)

// The timers of the thread that looks after a run's others may be late, those of all
// where it is not known which one that is, and its program's may not.
func TestTimersMayBeLate(t *testing.T) {
	cmd := exec.Command(binary(t), "run", "--isolation", "process", "--", "sh", "-c", "cat /proc/self/timerslack_ns && read line")
	cmd.Env = append(cmd.Environ(), "CAISSON_STATE="+filepath.Join(t.TempDir(), "state"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	inside, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(inside) != "50000" {
		t.Errorf("inside it is %q, %v; what the kernel gives is 50000", inside, err)
	}
	if os.Geteuid() != 0 {
		return // nobody else is told of another process's
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatal(threads, err)
	}
	monitor := strconv.Itoa(cmd.Process.Pid + 1)
	known := slices.ContainsFunc(threads, func(e os.DirEntry) bool { return e.Name() == monitor })
	for _, thread := range threads {
		first := thread.Name() == strconv.Itoa(cmd.Process.Pid)
		if known && !first && thread.Name() != monitor {
			continue // one that the monitor has begun is like it
		}
		has, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
		if os.IsNotExist(err) {
			continue // it has ended
		}
		late := strings.TrimSpace(string(has)) == fmt.Sprint(wire.Slack)
		if want := !known || !first; err != nil || late != want {
			t.Errorf("thread %s has %q, %v; the monitor is %s", thread.Name(), has, err, monitor)
		}
	}
}
