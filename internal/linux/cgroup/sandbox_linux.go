// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/sandbox"
)

// NameOf is the group of the sandbox with the given ID.
func NameOf(id string) string { return "caisson-" + id }

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
		g.Pids = min(l.Processes+own.Pids, MostPids)
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

// Sweep ends what still runs in the group of a sandbox whose owner was killed, and
// removes it. That there is none is no error.
func (l *Lookup) Sweep(ctx context.Context, id string) error {
	host := l.Host()
	if host == nil {
		return nil
	}
	g, err := host.Open(NameOf(id))
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Remove(ctx)
}
