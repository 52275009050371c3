// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/fscheckpoint"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	gvisor "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// save writes the snapshot that is wanted. With End the kernel inside ends with it.
//
// It asks the kernel's control socket itself: container.Checkpoint would look at
// a state that a start through that socket has not changed.
func (w *instance) save(c protocol.Command) error {
	k := w.runningKernel()
	if k == nil {
		return errors.New("the sandbox does not run")
	}
	if c.Files {
		// Every tmpfs that has a file behind it, which are the scratch directories and
		// the layer over the root: what is in memory alone, /dev/shm, is left out.
		all := []checkpoint.ResourceID{{Path: fscheckpoint.AllTmpfsPath}}
		return k.FSSave(w.conf, w.order.ID, c.Dir, gvisor.FSSaveOpts{Paths: all, ExitAfterSaving: c.End})
	}
	return k.Checkpoint(w.conf, w.order.ID, c.Dir, gvisor.CheckpointOpts{Resume: !c.End, ExcludeCommittedZeroPages: true, Compression: statefile.CompressionLevelNone})
}

// restore lets the sandbox go on from a snapshot, with a new wire where it has
// one.
func (w *instance) restore(conf *config.Config) error {
	var args *boot.CreateLinksAndRoutesArgs
	if n := w.order.Network; n != nil {
		nic, err := w.nic(n)
		if err != nil {
			return err
		}
		if args, err = networkArgs(n, nic); err != nil {
			return fmt.Errorf("the wire: %w", err)
		}
		defer nic.Close()
	}
	return w.box.Restore(conf, w.order.Restore, false, false, args)
}
