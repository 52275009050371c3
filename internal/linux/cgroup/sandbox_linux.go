// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// NameOf is the group of the sandbox with the given ID and state directory. Its end says
// in which directory that lies, see [mounts.DirectoryMark]: so a group can be told from those of other
// caissons when its sandbox's state directory is gone.
func NameOf(id, stateDir string) string {
	if owner := mounts.DirectoryMark(filepath.Dir(stateDir)); owner != "" {
		return sandboxPrefix + id + "." + owner
	}
	return sandboxPrefix + id
}

const sandboxPrefix = "caisson-"

// Share is what a level itself takes in a sandbox's group, on top of what programs may.
type Share struct {
	Memory int64 // bytes
	Pids   int   // processes and threads
}

// LimitsOf is the part of l that control groups can hold here, for a sandbox in whose
// group own is the level's. Block I/O is held where stateDir, and so scratch, lies; a
// device that cannot be found out is an error (ErrUnsupported).
func (h *Host) LimitsOf(l *sandbox.Limits, own Share, stateDir string) (Limits, error) {
	var g Limits
	can := func(controller string) bool { ok, _ := h.Can(controller); return ok }
	if l.Memory > 0 && can(Memory) {
		g.Memory = l.Memory + own.Memory
	}
	if l.CPUs > 0 && can(CPU) {
		g.CPUs = l.CPUs
	}
	if l.Processes > 0 && can(Pids) {
		g.Pids = min(l.Processes+own.Pids, MaxPids)
	}
	if (l.IO > 0 || l.IOPS > 0) && can(IO) && h.Version == 2 {
		device, err := BlockDevice(stateDir)
		if err != nil {
			return g, err
		}
		g.IO, g.IOPS, g.Devices = l.IO, l.IOPS, []Device{device}
	}
	return g, nil
}

// Find is where the group of the sandbox with the given ID and state directory is, in
// whatever group its owner was that made it: one directory for each hierarchy. The ID
// alone does not say whose it is: a copy of a state directory has the same IDs.
func (h *Host) Find(ctx context.Context, id, stateDir string) []string {
	want := NameOf(id, stateDir)
	return h.find(ctx, func(name string) bool { return name == want })
}

// Sweep ends what still runs in the group of a sandbox whose owner was killed, and
// removes it. That there is none is no error.
func (l *Lookup) Sweep(ctx context.Context, id, stateDir string) error {
	host := l.Host()
	if host == nil {
		return nil
	}
	g, err := Open(host.Find(ctx, id, stateDir))
	if err != nil {
		return err
	}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Remove(ctx)
}

// SweepEmpty removes the groups of sandboxes whose state directories were in dir and are
// there no more, as far as nothing is in them; a living owner's sandbox has its directory
// for longer than its group. owned says whether the sandbox with an ID has its directory.
func (l *Lookup) SweepEmpty(ctx context.Context, dir string, owned func(id string) bool) error {
	host, owner := l.Host(), mounts.DirectoryMark(dir)
	if host == nil || owner == "" {
		return nil
	}
	of := func(name string) (id string, ours bool) {
		id, ours = strings.CutSuffix(name, "."+owner)
		rest, ok := strings.CutPrefix(id, sandboxPrefix)
		return rest, ours && ok
	}
	var errs []error
	// All are found before the first is asked about: who makes a group has the directory.
	for _, path := range host.find(ctx, func(name string) bool { _, ours := of(name); return ours }) {
		if id, _ := of(groupName(path)); owned(id) {
			continue
		}
		g, err := Open([]string{path})
		if err == nil {
			_, err = g.removeTree(path) // something is in it: not gone
			g.removeParent()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
