// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// Start starts cmd as a member of the group: what it starts in turn is born
// there too, and the caller is not moved.
//
// Version 2 has clone3(2) for that. On version 1 a new process is where the
// thread was that forked it, so one thread steps in, forks, and steps out: a
// write to "tasks" by a thread about itself takes no lock that others wait
// for, where moving a process waits for an RCU grace period (6–40 ms for four
// hierarchies on a busy machine, measured).
func (g *Group) Start(cmd *exec.Cmd) error {
	if g.version == 1 {
		return g.startByThread(cmd)
	}
	dir, err := g.FD()
	if err != nil {
		return err
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

func (g *Group) startByThread(cmd *exec.Cmd) error {
	outside, err := g.Outside()
	if err != nil {
		return err
	}
	// The first thread speaks for all of the process: while it is in a group, the kernel
	// shows and charges the whole process there (/proc/self/cgroup), and who looked for
	// the way out at that moment would take the group for the place to go back to, and die
	// with it.
	done := make(chan error, 1)
	threads.Lesser(func() (release bool) {
		err := g.enterThread(g.Dirs())
		if err == nil {
			err = cmd.Start()
		}
		back := g.enterThread(outside)
		done <- err
		return back == nil
	})
	return <-done
}

// enterThread moves the calling thread into groups of version 1.
func (g *Group) enterThread(dirs []string) error {
	for _, dir := range dirs {
		if err := g.k.write(filepath.Join(dir, "tasks"), "0"); err != nil {
			return g.fail("start in", err)
		}
	}
	return nil
}

// self is what a thread writes about itself.
var self = [1]byte{'0'}

// Enter moves the calling process into the group, each of its threads by itself: on
// version 1, that waits for nothing (see Start). What it starts afterwards is born in
// it. On version 2, which has no groups of threads, it is ErrUnsupported: use Start.
func (g *Group) Enter() error {
	if g.version != 1 {
		return sandbox.Errorf(sandbox.ErrUnsupported, "enter cgroup "+g.name, "on cgroup v2 a process is started in its group")
	}
	if !threads.Room() {
		return &sandbox.Error{Op: "enter cgroup " + g.name, Kind: sandbox.ErrUnavailable, Problem: threads.Full, Hint: threads.Remedy}
	}
	for _, dir := range g.Dirs() {
		fd, err := open(filepath.Join(dir, "tasks"), unix.O_WRONLY)
		if err != nil {
			return g.fail("enter", err)
		}
		_, _, errno := syscall.AllThreadsSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&self[0])), 1)
		unix.Close(fd)
		if errno != 0 {
			return g.fail("enter", errno)
		}
	}
	return nil
}

// Outside lists the groups that the calling process is in, one for each of
// the group's Dirs.
func (g *Group) Outside() ([]string, error) {
	t := g.k.table()
	var outside []string
	for _, dir := range g.Dirs() {
		own, ok := t.current(g.kernelName(dir))
		if !ok {
			return nil, g.fail("leave", errors.New("the way out of "+dir+" is not visible here"))
		}
		outside = append(outside, own)
	}
	return outside, nil
}

// Leave moves the calling process, with all its threads, into the groups that
// somebody else's Outside named.
func (g *Group) Leave(outside []string) error {
	var errs []error
	for _, dir := range outside {
		errs = append(errs, g.enter(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return g.fail("leave", err)
	}
	return nil
}
