// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// claimName is the run directory that one process at a time holds.
const claimName = "sandboxes"

// An owner that was killed may hold it a little longer than it lived: what it was just
// starting has copies of all that it had open until it executes its program.
const (
	claimTimeout = 2 * time.Second
	claimAgain   = 20 * time.Millisecond
)

// claimAll takes away what dead owners left, and the run directory name for this one.
func claimAll(ctx context.Context, o *SandboxesOptions, name string) (session.RunDir, error) {
	late := time.After(claimTimeout)
	for again := false; ; again = true {
		if err := session.Sweep(ctx, o.State, o.Drivers); err != nil && !again {
			o.Notice(unswept + err.Error())
		}
		dir, err := o.State.Run(name)
		if err == nil || !errors.Is(err, sandbox.ErrConflict) {
			return dir, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late:
			return nil, &sandbox.Error{Op: "sandboxes in " + o.State.Path(), Kind: sandbox.ErrConflict, Problem: "another caisson serve has them",
				Hint: "stop it, or give this one a state directory of its own: --state DIR"}
		case <-time.After(claimAgain):
		}
	}
}
