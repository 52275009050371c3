// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"io"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

var _ sandbox.ChangeReader = (*instance)(nil)

// ReadChanges reads the upper layer by itself, through no process inside, while the
// container stands still.
func (i *instance) ReadChanges(ctx context.Context, target string, w io.Writer) error {
	i.destroy.Lock() // which closes the layers
	defer i.destroy.Unlock()
	dir := i.layers[target]
	if dir == nil || i.stop == nil {
		return sandbox.Errorf(sandbox.ErrInvalid, "read changes", "no directory is mounted copy-on-write at %s", target)
	}
	if !i.standsStill() && !i.over() {
		if err := i.Pause(ctx); err != nil && !i.over() {
			return err
		}
		defer func() { _ = i.Resume(context.WithoutCancel(ctx)) }() // it is removed all the same
	}
	return mounts.WriteUpper(ctx, dir, mounts.TrustedMarks, w)
}
