// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/process"
)

// holdEnv makes TestKilledWhileItMakes the owner of a sandbox that is held where its
// value says.
const holdEnv = "CAISSON_TEST_OWNER_OF_A_SANDBOX_HELD_AT"

// SIGKILL to caisson while it makes a sandbox, and what there is of it ends, too: also
// what asks to die with its parent only after that.
func TestKilledWhileItMakes(t *testing.T) {
	if at := os.Getenv(holdEnv); at != "" {
		process.Hold(at == "mapping", 3, 4)
		spec := *fixture(t)
		spec.ID = "sbx_" + rand.Text()
		fmt.Println("id", spec.ID, spec.StateDir)
		_, err := process.New(process.Options{}).Prepare(t.Context(), &spec)
		t.Log(err)
		t.Fatal("it was not held")
	}
	places := []string{"namespaces"}
	if os.Geteuid() == 0 {
		places = append(places, "mapping") // others' builders map themselves
	}
	for _, at := range places {
		t.Run(at, func(t *testing.T) { killHeld(t, at) })
	}
}

func killHeld(t *testing.T, at string) {
	// What the owner leaves behind is ours to wait for.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	heard, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	until, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer release.Close()
	owner := exec.Command("/proc/self/exe", "-test.run=^TestKilledWhileItMakes$") // of which an ordinary user may not see the path
	owner.Env = append(os.Environ(), holdEnv+"="+at, "TMPDIR="+t.TempDir())
	owner.Stderr = os.Stderr
	owner.ExtraFiles = []*os.File{say, until}
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before := children(t)
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var id, state string
	if _, err := fmt.Fscanf(out, "id %s %s\n", &id, &state); err != nil {
		t.Error(err)
	}
	say.Close()
	until.Close()
	if _, err := heard.Read(make([]byte, 1)); err != nil {
		t.Errorf("it was never held: %v", err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = owner.Wait()
	release.Close()
	orphansEnd(t, before)
	if err := process.New(process.Options{}).Sweep(t.Context(), id, state); err != nil {
		t.Error(err)
	}
	noGroups(t, id)
}

// noGroups holds that nothing is left of a sandbox's control groups.
func noGroups(t *testing.T, id string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/*/caisson*", "/sys/fs/cgroup/caisson*", "/sys/fs/cgroup/*/caisson/*"} {
		if left, err := filepath.Glob(pattern + id + "*"); err != nil || id == "" || len(left) > 0 {
			t.Errorf("groups of %q are left behind: %q, %v", id, left, err)
		}
	}
}

// orphansEnd waits for all children that were not there before.
func orphansEnd(t *testing.T, before []int) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		left := newer(children(t), before)
		for _, pid := range left {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-end:
			for _, pid := range left {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			t.Fatalf("%v live on", left)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func newer(now, before []int) (out []int) {
	for _, pid := range now {
		if !slices.Contains(before, pid) {
			out = append(out, pid)
		}
	}
	return out
}
