// SPDX-License-Identifier: Apache-2.0

package newborn

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// As a shim this binary waits for its owner to hang up, and does not mind
// anything else.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[0] == Argv0 && os.Args[1] == Word {
		_, _ = io.Copy(io.Discard, os.NewFile(FD, "owner"))
		return
	}
	os.Exit(m.Run())
}

func TestTaken(t *testing.T) {
	program := begun1(t, "/proc/self/exe")
	s := Take(program, "/nowhere/sandbox")
	if s == nil {
		t.Fatal("there is none")
	}
	if again := Take(program, "/nowhere/sandbox"); again != nil {
		t.Error("a second one got it, too")
	}
	s.Socket.Close() // as when the owner dies
	if state, err := s.Process.Wait(); err != nil || !state.Success() {
		t.Errorf("it ended with %v, %v", state, err)
	}
}

func TestAnotherProgramIsNotTaken(t *testing.T) {
	begun1(t, "/proc/self/exe")
	other, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if s := Take(other, "/nowhere/sandbox"); s != nil {
		t.Error("it is another program")
	}
	noChild(t)
}

func TestDiscard(t *testing.T) {
	begun1(t, "/proc/self/exe")
	Discard()
	noChild(t)
	Discard()
}

func TestThatCannotBeStarted(t *testing.T) {
	program := begun1(t, "/etc/hostname")
	if Take(program, "/nowhere/sandbox") != nil {
		t.Error("it is no program")
	}
	Begin("/nowhere")
	if Take(program, "/nowhere/sandbox") != nil {
		t.Error("it is not kept there")
	}
}

func begun1(t *testing.T, path string) *os.File {
	t.Helper()
	if unified() {
		t.Skip("on cgroup v2 there is none")
	}
	program, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	BeginWith(program)
	return program
}

func noChild(t *testing.T) {
	t.Helper()
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("there is a child: %d, %v", pid, err)
	}
}
