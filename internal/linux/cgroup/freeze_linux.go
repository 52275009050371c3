// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// CanFreeze reports whether groups can be made to stand still here, and if not,
// why: version 2 always can (Linux 5.2), version 1 where its freezer is mounted
// and may be written to.
func (h *Host) CanFreeze() (ok bool, why string) {
	switch {
	case h.Why != "":
		return false, h.Why
	case h.Version == 2 && len(h.controllers) > 0, h.extra["freezer"] != "":
		return true, ""
	}
	return false, "cgroup v1 has no freezer here that may be used"
}

// Freeze stops everything in the group at once and returns when it stands
// still, or when ctx (5 seconds where it has no deadline) ends: what does not
// stop by then runs on, all of it. It is idempotent.
//
// Version 1 freezes in a hierarchy of its own. A group that is never frozen does
// without, as its making and removal would cost every start: members move there
// now, into a group that is frozen already, so that none can fork on the way.
func (h *Host) Freeze(ctx context.Context, g *Group) error {
	if ok, why := h.CanFreeze(); !ok {
		return &sandbox.Error{Op: "freeze cgroup " + g.name, Kind: sandbox.ErrUnsupported, Problem: why}
	}
	var err error
	if g.version == 2 {
		err = g.freeze2(ctx)
	} else if err = h.addFreezer(g); err == nil {
		err = g.freeze1(ctx)
	}
	if err != nil {
		return errors.Join(err, g.Thaw())
	}
	return nil
}

func (g *Group) freeze2(ctx context.Context) error {
	dir := g.dir("")
	if err := g.k.write(filepath.Join(dir, "cgroup.freeze"), "1"); err != nil {
		return g.fail("freeze", err)
	}
	return g.wait(ctx, "freeze", "does not stand still", func() (bool, error) {
		return strings.Contains(read(filepath.Join(dir, "cgroup.events")), "frozen 1"), nil
	})
}

// addFreezer makes the group's directory in version 1's freezer.
func (h *Host) addFreezer(g *Group) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freezer != "" || g.dirs["freezer"] != "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	dir := h.place(h.extra["freezer"], g.name)
	if err := h.k.mkdir(dir); err != nil {
		return createError(g.name, err)
	}
	g.freezer = dir
	return nil
}

func (g *Group) freeze1(ctx context.Context) error {
	dir := g.dir("freezer")
	state, procs := filepath.Join(dir, "freezer.state"), filepath.Join(dir, "cgroup.procs")
	if err := g.k.write(state, "FROZEN"); err != nil {
		return g.fail("freeze", err)
	}
	return g.wait(ctx, "freeze", "does not stand still", func() (bool, error) {
		pids, err := g.Pids()
		if err != nil {
			return false, err
		}
		all := true
		inside := parsePids(read(procs))
		for _, pid := range pids {
			if slices.Contains(inside, pid) {
				continue
			}
			all = false // look again: it may have forked before it was moved
			if err := g.k.write(procs, strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
				return false, err
			}
		}
		// The kernel tries again at every write: a member may have been unable to.
		if err := g.k.write(state, "FROZEN"); err != nil {
			return false, err
		}
		return all && strings.TrimSpace(read(state)) == "FROZEN", nil
	})
}

// Thaw lets everything in the group go on. It is idempotent, and nothing where
// the group was never frozen or is gone.
func (g *Group) Thaw() error {
	file, value := filepath.Join(g.dir("freezer"), "freezer.state"), "THAWED"
	if g.version == 2 {
		file, value = filepath.Join(g.dir(""), "cgroup.freeze"), "0"
	} else if g.dir("freezer") == "" {
		return nil
	}
	if err := g.k.write(file, value); err != nil && !gone(err) {
		return g.fail("thaw", err)
	}
	return nil
}

// thawToDie lets frozen processes of version 1 take the signal that kills them;
// version 2 kills frozen ones. What else is in the group runs until it is killed.
func (g *Group) thawToDie() {
	if g.version == 1 {
		_ = g.Thaw()
	}
}
