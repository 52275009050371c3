// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// EnvironmentDigest is of what the policy has a sandbox's environment made of, which no change
// of the policy reaches once it is made. Its network, variables and rules are not
// among it: those are decided as it goes; and of its commands what the level holds.
func (r *Invocation) EnvironmentDigest() string {
	if !r.Session.o.Outlive && r.Life == nil {
		return "" // nobody will ask
	}
	p := &r.Plan
	var programs []string
	if p.Commands != nil && r.Caps.Executables {
		programs = append(programs, p.Commands.Programs...)
	}
	b, err := json.Marshal([]any{
		p.Isolation, p.Limits, p.Limits.Explicit, p.Workspace, p.Mounts, p.Toolchains, p.Rootfs, p.Image, p.Writable, p.Deny, p.Root, p.BestEffort, r.Call.Sudo && r.Caps.Root, programs,
	})
	if err != nil {
		return "" // which is no environment's
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
