// SPDX-License-Identifier: Apache-2.0

//go:build linux

package threads_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

func TestLeaveAsFirst(t *testing.T) { drivertest.AsFirst(t, "TestLeave") }

// What all threads of a process have they give up, and what it starts has it no more.
func TestLeave(t *testing.T) {
	if err := threads.ResetAttributes(); err != nil {
		t.Fatal(err)
	}
	if has := drivertest.Standing(t, os.Getpid()); has != "" {
		t.Errorf("it has %s", has)
	}
	if s, err := threads.ReadAttributes(); err != nil || s != (threads.Attributes{}) {
		t.Errorf("%+v, %v", s, err)
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if has := drivertest.Standing(t, cmd.Process.Pid); has != "" {
		t.Errorf("what it starts has %s", has)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// What may not be asked, in a container that filters system calls, keeps no program
// from running.
func TestMayNotAsk(t *testing.T) {
	if !drivertest.Refused(t, unix.SYS_SCHED_GETATTR, unix.SYS_IOPRIO_GET, unix.SYS_PERSONALITY) {
		return
	}
	if s, err := threads.ReadAttributes(); err != nil || s != (threads.Attributes{}) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := threads.ResetAttributes(); err != nil {
		t.Error(err)
	}
}

// What makes a process stand back is left as it is.
func TestStandsBack(t *testing.T) {
	cmd := exec.Command("nice", "-n", "5", "chrt", "--idle", "0", "ionice", "-c3", "/proc/self/exe", "-test.run=^TestIdle$", "-test.v")
	cmd.Args[len(cmd.Args)-3], _ = os.Executable()
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestIdle (")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestIdle(t *testing.T) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := threads.ResetAttributes(); err != nil {
		t.Fatal(err)
	}
	if after, err := unix.SchedGetAttr(0, 0); err != nil || after.Policy != before.Policy || after.Nice != before.Nice {
		t.Errorf("policy %d, nice %d became %d, %d: %v", before.Policy, before.Nice, after.Policy, after.Nice, err)
	}
}

func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		if _, err := threads.ReadAttributes(); err != nil {
			b.Fatal(err)
		}
	}
}
