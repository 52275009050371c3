// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// siblings makes children of its parent's, by clone(CLONE_PARENT): one that stays,
// and three that end at once.
const siblings = `
import ctypes, os, platform, time
libc = ctypes.CDLL(None, use_errno=True)
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
for i in range(4):
    pid = libc.syscall(clone, 0x8000 | 17, 0, 0, 0, 0)
    if pid == 0:
        if i == 0: time.sleep(3600)
        os._exit(0)
    print(os.strerror(ctypes.get_errno()) if pid < 0 else "made", flush=True)
`

func makingSiblings(out *bytes.Buffer) *sandbox.Exec {
	return &sandbox.Exec{Argv: []string{"python3", "-I", "-S", "-c", siblings}, Dir: "/tmp", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: out}
}

// zombies says whether this process has a child that has ended and was not reaped.
func zombies(t *testing.T) bool {
	t.Helper()
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil && !errors.Is(err, unix.ECHILD) {
		t.Fatal(err)
	}
	return info.Signo != 0
}

// A program cannot make children of caisson's.
func TestNoSiblings(t *testing.T) {
	for name, run := range roads {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			res, err := run(t.Context(), process.New(process.Options{}), fixture(t), makingSiblings(&out))
			if err != nil || res.Status != sandbox.StatusSuccess {
				t.Fatalf("%+v, %v", res, err)
			}
			if want := strings.Repeat(unix.EPERM.Error()+"\n", 4); !strings.EqualFold(out.String(), want) {
				t.Errorf("clone(CLONE_PARENT) said %q", out.String())
			}
		})
	}
}

// Where it could, the sandbox ends all the same, and they are reaped.
func TestUnknownChildrenAreReaped(t *testing.T) {
	defer process.Weaken(0, calls(unix.SYS_SECCOMP))()
	for name, run := range roads {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			res, err := run(t.Context(), process.New(process.Options{}), fixture(t), makingSiblings(&out))
			if err != nil || res.Status != sandbox.StatusSuccess || strings.Count(out.String(), "made") != 4 {
				t.Fatalf("%+v, %v, %q", res, err, out.String())
			}
			if zombies(t) {
				t.Error("there are zombies")
			}
		})
	}
}

// A sandbox that does not end keeps no caller waiting. It is an error that names what
// is left, and what is left is taken away when it can be.
func TestEndThatDoesNotCome(t *testing.T) {
	defer process.Weaken(0, calls(unix.SYS_SECCOMP))()
	restore := process.LeaveUnknown(200 * time.Millisecond)
	defer restore()
	stuck := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, sandbox.ErrUnended) || !strings.Contains(err.Error(), `init", state `) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var out bytes.Buffer
	_, err := roads["at once"](t.Context(), process.New(process.Options{}), fixture(t), makingSiblings(&out))
	stuck("Run", err)
	p, err := process.New(process.Options{}).Prepare(t.Context(), fixture(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Run(t.Context(), makingSiblings(&out))
	stuck("Prepared.Run", err)
	stuck("Prepared.Destroy", p.Destroy(t.Context()))
	restore()
	select {
	case <-p.Ended():
	case <-time.After(time.Minute):
		t.Fatal("it is never taken away")
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Errorf("in the end: %v", err)
	}
}
