// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// endTimeout bounds Kill and Remove where the caller's context has no deadline.
const endTimeout = 5 * time.Second

// Kill kills everything in the group, however it forks, and returns when
// nothing is left, or when ctx (5 seconds where it has no deadline) ends. The
// group is of no further use: nothing may be able to fork in it.
func (g *Group) Kill(ctx context.Context) error {
	return g.wait(ctx, "kill", "still has processes in it", func() (bool, error) {
		if g.version == 2 && g.kill2() == nil {
			pids, err := g.Pids()
			return len(pids) == 0, err
		}
		thaw := g.stopForks()
		defer g.thawToDie() // a frozen process dies only when it thaws
		defer thaw()
		pids, err := g.Pids()
		for _, pid := range pids {
			g.kill1(pid)
		}
		return len(pids) == 0, err
	})
}

// kill2 has the kernel do it (5.14 or newer), against forks too.
func (g *Group) kill2() error {
	for _, dir := range g.Dirs() {
		if err := g.k.write(filepath.Join(dir, "cgroup.kill"), "1"); err != nil && exists(dir) {
			return err
		}
	}
	return nil
}

// stopForks keeps a fork bomb from outrunning us: no new process is the
// surest way, the freezer the second. The function it returns thaws.
func (g *Group) stopForks() (thaw func()) {
	if dir := g.dir(Pids); dir != "" && g.k.write(filepath.Join(dir, "pids.max"), "0") == nil {
		return func() {}
	}
	state := filepath.Join(g.dir("freezer"), "freezer.state")
	if g.dir("freezer") == "" || g.k.write(state, "FROZEN") != nil {
		return func() {}
	}
	return func() { _ = g.k.write(state, "THAWED") }
}

// kill1 kills one member. Its number may have passed to a stranger since it
// was read: so take a handle first (a pidfd, where the kernel has them), see
// whether the number still is a member, and kill by the handle.
func (g *Group) kill1(pid int) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	defer p.Release()
	if members, err := g.Pids(); err == nil && slices.Contains(members, pid) {
		_ = p.Signal(syscall.SIGKILL)
	}
}

// Remove takes the group away, and the "caisson" group above when it was the
// last in it. It kills no process: it waits for the group to be empty until ctx
// (5 seconds where it has no deadline) ends. A group that is gone is removed.
func (g *Group) Remove(ctx context.Context) error {
	g.kept.close()
	dirs := g.Dirs()
	err := g.wait(ctx, "remove", "still has processes in it", func() (bool, error) {
		for _, dir := range dirs {
			if gone, err := g.removeTree(dir); !gone {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	g.removeParent()
	return nil
}

// removeParent removes what makeParent has made, unless a neighbour is in it.
func (g *Group) removeParent() {
	if dir := g.dir(""); g.version == 2 && dir != "" {
		_ = g.k.rmdir(filepath.Dir(dir))
	}
}

// removeTree removes dir, and what is below it where that is what keeps it: few
// groups have anything, and looking costs more than trying. It is not gone
// while processes are in it.
func (g *Group) removeTree(dir string) (gone bool, err error) {
	if gone, err := g.remove(dir); gone || err != nil {
		return gone, err
	}
	for _, d := range tree(dir) {
		if gone, err := g.remove(d); !gone {
			return false, err
		}
	}
	return true, nil
}

// remove removes one group, unless something is in it.
func (g *Group) remove(dir string) (gone bool, err error) {
	switch err := g.k.rmdir(dir); {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTEMPTY):
		return false, nil
	default:
		return false, err
	}
}

// wait repeats step, ever more slowly, until it is done, fails, or time is up:
// the group is then what late says.
func (g *Group) wait(ctx context.Context, op, late string, step func() (bool, error)) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, endTimeout)
		defer cancel()
	}
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		done, err := step()
		if err != nil {
			return g.fail(op, err)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			pids, _ := g.Pids()
			return &sandbox.Error{Op: op + " cgroup " + g.name, Kind: sandbox.ErrUnavailable, Problem: fmt.Sprintf("it %s: %v", late, pids), Cause: context.Cause(ctx)}
		case <-time.After(pause):
		}
	}
}
