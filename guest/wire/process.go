// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/caisson-run/caisson/internal/envd"

// FramesType in a request's Accept header asks Start and Connect for frames
// instead of Connect's envelopes: Started first, then Stdout, Stderr and Alive,
// and Exit at the end. A refusal is a status and Connect's JSON error.
const FramesType = "application/vnd.caisson.frames"

// ProcessStart is envd's request of Start, and the rlimits of the process.
type ProcessStart struct {
	envd.ProcessStart
	Limits Limits `json:"caissonLimits,omitzero"`
}
