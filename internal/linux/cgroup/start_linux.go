// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
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
		changed, err := leaveRealTime()
		if err == nil {
			err = g.enterThread(g.Dirs())
		}
		if err == nil {
			err = cmd.Start()
		}
		back := g.enterThread(outside)
		done <- err
		return back == nil && !changed
	})
	return <-done
}

// leaveRealTime gives the calling thread an ordinary scheduling policy if it has a
// real-time one: a group without a share of real time refuses such a thread (sched(7)).
func leaveRealTime() (changed bool, err error) {
	now, err := threads.ReadAttributes()
	if err != nil || !now.RealTime {
		return false, err
	}
	return true, unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
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
// another process's Outside named.
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
