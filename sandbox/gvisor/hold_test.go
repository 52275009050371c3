// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

func TestHeldAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestHeld") }

// marked is a sandbox whose program leaves a file on the host.
func marked(t *testing.T) (spec *sandbox.Spec, ex *sandbox.Exec, mark string) {
	t.Helper()
	dir := t.TempDir()
	spec = world(t)
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: open(t, dir), Name: dir, Target: "/out", Dir: true, Access: sandbox.ReadWrite})
	return spec, &sandbox.Exec{Argv: []string{"sh", "-c", "echo ran >/out/mark; echo said"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}}, filepath.Join(dir, "mark")
}

// hold has it made, and gives it the time that another sandbox takes from its
// beginning to its end.
func hold(t *testing.T, d *gvisor.Driver, spec *sandbox.Spec, ex *sandbox.Exec) sandbox.Held {
	t.Helper()
	h, err := d.Hold(t.Context(), spec, ex)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := d.Run(t.Context(), world(t), &sandbox.Exec{Argv: []string{"true"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}}); err != nil || res.Status != sandbox.StatusSuccess {
		t.Fatalf("%+v, %v", res, err)
	}
	return h
}

func missing(t *testing.T, what, name string) {
	t.Helper()
	if _, err := os.Lstat(name); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", what, err)
	}
}

func noControlGroup(t *testing.T, id string) {
	t.Helper()
	host := cgroup.Detect()
	if host.Why != "" {
		return
	}
	if g, err := host.Open("caisson-" + id); err == nil && len(g.Dirs()) > 0 || err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the control group is there: %v", err)
	}
}

func TestHeld(t *testing.T) {
	d := gvisor.New(gvisor.Options{})
	t.Run("runs when it may", func(t *testing.T) {
		spec, ex, mark := marked(t)
		h := hold(t, d, spec, ex)
		missing(t, "what the program leaves", mark)
		var out bytes.Buffer
		ex.Stdout = &out
		res, err := h.Run(t.Context(), ex)
		if err != nil || res.Status != sandbox.StatusSuccess || out.String() != "said\n" {
			t.Errorf("%+v, %v, %q", res, err, out.String())
		}
		if _, err := os.Lstat(mark); err != nil {
			t.Error(err)
		}
		if _, err := h.Run(t.Context(), ex); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("a second time: %v", err)
		}
		if err := h.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("is destroyed", func(t *testing.T) {
		spec, ex, mark := marked(t)
		h := hold(t, d, spec, ex)
		if err := h.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		missing(t, "what the program leaves", mark)
		noControlGroup(t, spec.ID)
		if left := descendants(t, os.Getpid(), "caisson-shim"); len(left) > 0 {
			t.Errorf("%d shims are left", len(left))
		}
	})
	t.Run("has its owner killed", func(t *testing.T) {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHeldOwner$")
		temp := t.TempDir()
		cmd.Env = append(os.Environ(), "CAISSON_TEST_HELD=yes", "TMPDIR="+temp)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		var id, state, mark string
		line, err := bufio.NewReader(out).ReadString('\n')
		if _, serr := fmt.Sscan(strings.TrimPrefix(line, "held "), &pid, &id, &state, &mark); err != nil || serr != nil {
			_ = cmd.Process.Kill()
			t.Fatalf("%q, %v, %v", line, err, cmd.Wait())
		}
		shim, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(shim)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(shim), Events: unix.POLLIN}}, 30_000); n != 1 {
			t.Fatalf("the shim has not ended: %v", err)
		}
		missing(t, "what the program leaves", mark)
		missing(t, "the state directory", state)
		noControlGroup(t, id)
	})
}

// The owner of a held sandbox, for TestHeld to kill.
func TestHeldOwner(t *testing.T) {
	if os.Getenv("CAISSON_TEST_HELD") == "" {
		t.Skip("for TestHeld")
	}
	spec, ex, mark := marked(t)
	hold(t, gvisor.New(gvisor.Options{}), spec, ex)
	fmt.Println("held", descendants(t, os.Getpid(), "caisson-shim")[0], spec.ID, spec.StateDir, mark)
	_, _ = os.Stdin.Read(make([]byte, 1))
}
