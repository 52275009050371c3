// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The first run after a boot leaves a process behind that reads the program anew, or
// finds that somebody did, and ends; the next one does not, nor where two programs use
// the same state directory in turns.
func TestFirstRunReadsTheProgramAnew(t *testing.T) {
	carried := os.Getenv("CAISSON")
	if carried == "" {
		carried = build(t, ".") // which has no other program to do that with
	}
	one, other := filepath.Join(t.TempDir(), "caisson"), filepath.Join(t.TempDir(), "caisson") // others may use the one that was built
	duplicate(t, carried, one)
	duplicate(t, carried, other)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	state, fresh := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "state")
	for i, run := range []struct {
		program, state string
		left           int
	}{{one, state, 1}, {one, state, 0}, {other, state, 1}, {one, state, 0}, {other, state, 0}, {other, fresh, 1}} {
		program, want := run.program, run.left
		if os.Getenv("CAISSON") == "" {
			want = 0
		}
		cmd := exec.Command(program, "run", "--isolation", "process", "--", "true")
		cmd.Env = append(cmd.Environ(), "CAISSON_STATE="+run.state)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		left := 0
		for {
			var ws unix.WaitStatus
			_, err := unix.Wait4(-1, &ws, 0, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				break
			}
			if left++; !ws.Exited() || ws.ExitStatus() != 0 {
				t.Errorf("what was left ended with %v", ws)
			}
		}
		if left != want {
			t.Errorf("run %d left %d processes, want %d", i+1, left, want)
		}
	}
}

func duplicate(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}
