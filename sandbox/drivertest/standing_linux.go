// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Standing is what sets a process apart from others on the machine, for the worse of
// these, in any of its threads: a real-time policy, a nice value below 0, I/O that goes first, protection from
// the kernel's killer, an address space that is laid out foreseeably. It is empty for one
// that stands as others do.
func Standing(t *testing.T, pid int) string {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return "" // it has ended
	}
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	var has []string
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		has = append(has, standing(t, pid, tid)...)
	}
	slices.Sort(has)
	return strings.Join(slices.Compact(has), ", ")
}

func standing(t *testing.T, pid, tid int) (has []string) {
	t.Helper()
	attr, err := unix.SchedGetAttr(tid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended
	}
	if err != nil {
		t.Fatal(err)
	}
	if attr.Policy != unix.SCHED_NORMAL {
		has = append(has, fmt.Sprint("policy ", attr.Policy))
	}
	if attr.Nice < 0 {
		has = append(has, fmt.Sprint("nice ", attr.Nice))
	}
	const process, class, first = 1, 13, 1
	if disk, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, process, uintptr(tid), 0); errno == 0 && disk>>class == first {
		has = append(has, "first on the disk")
	}
	for name, fine := range map[string]func(string) bool{
		"personality":   func(s string) bool { return strings.Trim(s, "0") == "" },
		"oom_score_adj": func(s string) bool { n, err := strconv.Atoi(s); return err == nil && n >= 0 },
	} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/%s", pid, tid, name))
		if os.IsPermission(err) || os.IsNotExist(err) || errors.Is(err, unix.ESRCH) {
			continue // not this user's to know, or it has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.TrimSpace(string(text)); !fine(s) {
			has = append(has, name+" "+s)
		}
	}
	return has
}

// AsFirst runs a test of this program again, as a process that goes before all others
// on this machine, whose address space is laid out foreseeably.
func AsFirst(t *testing.T, name string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone may go first")
	}
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "-5", "chrt", "--fifo", "10", "ionice", "-c1", "-n0", "setarch", "-R", "/proc/self/exe", "-test.run=^"+name+"$", "-test.v")
	cmd.Args[len(cmd.Args)-3], _ = os.Executable()
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+name+" (")) {
		t.Errorf("%v\n%s", err, out)
	}
}
