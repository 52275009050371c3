// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// lowVariable marks the process that TestLowDescriptors looks at.
const lowVariable = "CAISSON_TEST_LOW_DESCRIPTORS"

// firstFree is descriptor 3, held until the test wants what is opened next to have it.
var firstFree = -1

func init() {
	if os.Getenv(lowVariable) != "" {
		firstFree, _ = unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	}
}

// A program's own descriptors may be free in caisson, which then opens there what it
// hands over: the agent as much as what a sandbox that waits is woken by.
func TestLowDescriptors(t *testing.T) {
	if os.Getenv(lowVariable) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestLowDescriptors$", "-test.v")
		// Go's runtime has files of its control group open where that bounds the processors.
		cmd.Env = append(os.Environ(), lowVariable+"=1", "GODEBUG=containermaxprocs=0,updatemaxprocs=0")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestLowDescriptors/ahead") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if firstFree != 3 {
		files, _ := exec.Command("ls", "-l", fmt.Sprintf("/proc/%d/fd", os.Getpid())).Output()
		t.Fatalf("the first free descriptor was %d\n%s", firstFree, files)
	}
	free := func(t *testing.T) {
		unix.Close(3)
		t.Cleanup(func() {
			if fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3); fd != 3 {
				t.Errorf("descriptor 3 is still open: %d, %v", fd, err)
			}
		})
	}
	spec := fixture(t)
	t.Run("living", func(t *testing.T) {
		free(t)
		box, err := process.New(process.Options{}).Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer box.Destroy(context.Background())
		if _, err := box.Dial(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("ahead", func(t *testing.T) {
		free(t)
		box, err := process.New(process.Options{}).Prepare(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer box.Destroy(context.Background())
		var out strings.Builder
		if _, err := box.Run(t.Context(), &sandbox.Exec{Argv: []string{"/bin/echo", "it runs"}, Dir: "/tmp", Stdout: &out}); err != nil || out.String() != "it runs\n" {
			t.Errorf("%q, %v", out.String(), err)
		}
	})
}
