// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// EnvironmentDigest is of what the policy has a sandbox's environment made of, which no change
// of the policy reaches once it is made. Its network, variables and rules are not
// among it: those are decided as it goes; and of its commands what the level holds.
func EnvironmentDigest(call *Call, p *policy.Plan, caps sandbox.Capabilities) string {
	var programs []string
	if p.Commands != nil && caps.Executables {
		programs = append(programs, p.Commands.Programs...)
	}
	b, err := json.Marshal([]any{
		p.Isolation, p.Limits, p.Limits.Explicit, p.Workspace, p.Mounts, p.Toolchains, p.Rootfs, p.Image, p.Writable, p.Deny, p.Root, p.BestEffort, call.Sudo && caps.Root, programs,
	})
	if err != nil {
		return "" // which is no environment's
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
