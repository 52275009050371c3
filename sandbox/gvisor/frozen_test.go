// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// A kernel that does not answer can still be ended: neither a signal for the
// program nor a look at its usage may stand in the way.
func TestCancelEndsAKernelThatDoesNotAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up := &waiter{text: "up", seen: make(chan struct{})}
	signals := make(chan syscall.Signal)
	ended := make(chan error, 1)
	go func() {
		res, err := gvisor.New(gvisor.Options{}).Run(ctx, fixture(t), &sandbox.Exec{
			Argv: []string{"sh", "-c", "echo up; sleep 1000"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: up,
			Signals: signals, Sample: func(sandbox.Usage) {}, SampleEvery: 10 * time.Millisecond,
		})
		if err == nil && res.Signal != "SIGKILL" {
			t.Errorf("result %+v", res)
		}
		ended <- err
	}()
	select {
	case <-up.seen:
	case err := <-ended:
		t.Fatalf("it ended early: %v", err)
	}
	shim := descendants(t, os.Getpid(), "caisson-shim")[0]
	kernel := descendants(t, shim, "runsc-sandbox")[0]
	if err := unix.Kill(kernel, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 50 { // more than anything buffers
		signals <- syscall.SIGINT
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		_ = unix.Kill(kernel, unix.SIGKILL)
		<-ended
		t.Error("it hung")
	}
}

// A keeper that was stopped must not keep caisson: it is killed after a while,
// and the sandbox goes with it.
func TestCancelEndsAStoppedShim(t *testing.T) {
	defer gvisor.SetEndGrace(200 * time.Millisecond)()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up := &waiter{text: "up", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := gvisor.New(gvisor.Options{}).Run(ctx, fixture(t), &sandbox.Exec{
			Argv: []string{"sh", "-c", "echo up; sleep 1000"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: up,
		})
		ended <- err
	}()
	select {
	case <-up.seen:
	case err := <-ended:
		t.Fatalf("it ended early: %v", err)
	}
	shim := descendants(t, os.Getpid(), "caisson-shim")[0]
	kernel := descendants(t, shim, "runsc-sandbox")[0]
	end, err := unix.PidfdOpen(kernel, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(end)
	if err := unix.Kill(shim, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
	case <-time.After(time.Minute):
		_ = unix.Kill(shim, unix.SIGKILL)
		<-ended
		t.Fatal("it hung")
	}
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}, 60_000)
	}
	if n != 1 {
		t.Fatalf("the kernel process lives on (%v)", err)
	}
}
