// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/volume"
)

// KindRemoveVolume is what records call it when a volume is removed.
const KindRemoveVolume = "remove_volume"

// RemoveVolume removes the volume with an ID, or with the one ID that begins so. call says
// who asks. The record has its name and workspace before anything is removed.
//
// Errors: ErrNotFound, ErrInvalid for a beginning that several have, ErrConflict where a
// sandbox has it.
func (s *Session) RemoveVolume(ctx context.Context, call *Call, id string) (*volume.Volume, error) {
	store := volume.In(s.o.State.Path())
	v, err := store.Find(id)
	if err != nil {
		return nil, err
	}
	in := audit.Intent{
		Actor: call.Actor, Kind: KindRemoveVolume, Policy: s.o.PolicyName, PolicySHA: s.o.Policy.Digest(), Account: call.Account,
		Labels: map[string]string{"volume": v.ID, "name": v.Name, "workspace": v.Workspace},
	}
	return v, audit.Perform(ctx, s.o.Journal, in, func(context.Context, *audit.Operation) (*sandbox.Result, error) {
		return nil, store.Remove(v.ID)
	})
}
