// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// hostShare is what the host's group holds beyond what programs may have. Of tasks these
// are gVisor's own threads, and stub processes for the tasks inside: the kernel inside
// holds the exact number (RLIMIT_NPROC); this one keeps a broken kernel from harming the
// host.
func hostShare(l *sandbox.Limits) cgroup.Share {
	return cgroup.Share{Memory: protocol.KernelShare(l.Memory), Pids: l.Processes + 512}
}

// grouped says whether sandboxes have control groups of their own.
func grouped(host *cgroup.Host) bool { return host != nil && host.Why == "" }

// makeGroup makes the control group that holds memory, processors, tasks and
// block I/O, as far as this host lets us.
func (b *box) makeGroup(host *cgroup.Host) error {
	if !grouped(host) {
		return nil
	}
	limits, dir := &b.spec.Limits, b.spec.StateDir
	want, err := host.LimitsOf(limits, hostShare(limits), dir)
	if err != nil {
		return err
	}
	g, err := host.Create(cgroup.NameOf(b.spec.ID, dir), want)
	if err != nil {
		return &sandbox.Error{
			Op: "limit sandbox", Kind: sandbox.ErrUnavailable, Problem: "its control group cannot be made", Cause: err,
			Hint: "see what caisson doctor says about control groups",
		}
	}
	b.group, b.memoryHeld = g, want.Memory > 0
	return nil
}
