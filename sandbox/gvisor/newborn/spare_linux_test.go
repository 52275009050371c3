// SPDX-License-Identifier: Apache-2.0

package newborn

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestKept(t *testing.T) {
	program, state := kept(t)
	Keep(program, filepath.Dir(state), time.Hour) // there is one
	s := Take(program, state)
	if s == nil {
		t.Fatal("there is none")
	}
	if again := Take(program, state); again != nil {
		t.Error("a second one got it, too, or another was started")
	}
	s.Socket.Close() // as when the owner dies
	if state, err := s.Process.Wait(); err != nil || !state.Success() {
		t.Errorf("it ended with %v, %v", state, err)
	}
	noChild(t)
}

func TestKeptInVain(t *testing.T) {
	kept(t)
	begun.late.Reset(0)
	// It dies, and is waited for.
	for unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil) != unix.ECHILD {
		runtime.Gosched()
	}
	if take() != nil {
		t.Error("it would be taken")
	}
}

// What a shim has of its owner's is what its owner had then.
func TestKeptOfAnotherOwner(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, state string) string{
		"a bound": func(t *testing.T, state string) string {
			var was unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
				t.Fatal(err)
			}
			now := unix.Rlimit{Cur: was.Cur ^ 1, Max: was.Max}
			if now.Cur > now.Max {
				t.Skip("there is but one")
			}
			if err := unix.Setrlimit(unix.RLIMIT_CORE, &now); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &was) })
			return state
		},
		"another place": func(t *testing.T, state string) string { return t.TempDir() },
		"mounted": func(t *testing.T, state string) string {
			mountOver(t, state)
			return state
		},
		"all mounted": func(t *testing.T, state string) string {
			mountOver(t, filepath.Dir(state))
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			return state
		},
	} {
		t.Run(name, func(t *testing.T) {
			program, state := kept(t)
			if Take(program, change(t, state)) != nil {
				t.Error("it was taken all the same")
			}
			noChild(t)
		})
	}
}

// The same, of what a process cannot undo.
func TestKeptOfAnOwnerThatHasChanged(t *testing.T) {
	const variable = "CAISSON_TEST_CHANGE"
	all := func(t *testing.T, call, a, b, c uintptr) {
		t.Helper()
		if _, _, errno := syscall.AllThreadsSyscall(call, a, b, c); errno != 0 {
			t.Fatal(errno)
		}
	}
	changes := map[string]struct {
		root bool
		do   func(t *testing.T, state string)
	}{
		"nothing":  {false, func(*testing.T, string) {}},
		"priority": {false, func(t *testing.T, _ string) { all(t, unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, 19) }},
		"disk":     {false, func(t *testing.T, _ string) { all(t, unix.SYS_IOPRIO_SET, 1, 0, 3<<13) }},
		"securebits": {true, func(t *testing.T, _ string) {
			all(t, unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 1<<2, 0) // SECBIT_NO_SETUID_FIXUP
		}},
		"landlock": {false, func(t *testing.T, _ string) {
			attr := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_CHAR}
			fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
			if errno != 0 {
				t.Skip("no Landlock here: ", errno)
			}
			all(t, unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
		}},
		"root": {true, chroot},
	}
	if change, ok := changes[os.Getenv(variable)]; ok {
		all(t, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0) // which Landlock asks for
		program, state := kept(t)
		change.do(t, state)
		if s := Take(program, state); (s != nil) != (os.Getenv(variable) == "nothing") {
			t.Errorf("taken: %v", s != nil)
		} else if s != nil {
			s.End()
		}
		noChild(t)
		return
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			if change.root && os.Geteuid() != 0 {
				t.Skip("only root can")
			}
			cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestKeptOfAnOwnerThatHasChanged$")
			cmd.Env = append(os.Environ(), variable+"="+name)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "--- SKIP") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// chroot makes the directory that state is in this process's root, in which it has the
// name that it had.
func chroot(t *testing.T, state string) {
	dir := filepath.Dir(state)
	was, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	proc, name := filepath.Join(dir, "proc"), filepath.Join(dir, dir)
	err = errors.Join(os.Mkdir(proc, 0o700), os.MkdirAll(filepath.Dir(name), 0o700), os.Symlink("/", name),
		unix.Mount("/proc", proc, "", unix.MS_BIND, ""), unix.Chroot(dir))
	t.Cleanup(func() {
		if err := errors.Join(unix.Fchdir(was), unix.Chroot("."), unix.Unmount(proc, 0)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mountOver(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's shim has no mounts of its own")
	}
	if err := unix.Mount("test", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// Each line that is looked for is there.
func TestDescribe(t *testing.T) {
	text, err := describe(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range inherited {
		if !strings.Contains("\n"+text, "\n"+name+":") {
			t.Errorf("no %s in\n%s", name, text)
		}
	}
	for _, want := range []string{"Max open files", "mnt:[", "user:["} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// kept has a spare of this binary, for the sandbox that has the directory state.
func kept(t *testing.T) (program *os.File, state string) {
	t.Helper()
	program, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	state = filepath.Join(t.TempDir(), "sandbox")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	Keep(program, filepath.Dir(state), time.Hour)
	t.Cleanup(Discard)
	Await()
	return program, state
}
