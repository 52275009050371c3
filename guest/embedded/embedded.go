// SPDX-License-Identifier: Apache-2.0

// Package embedded has the guest agent that goes into sandboxes as a program.
//
// `make build` embeds cmd/caisson-guest, a slim build for the same
// architecture, packed. A binary built by `go install` has none and is its own agent:
// larger, and the same code. Either way argv[0] is [Argv0].
package embedded

// Argv0 is what the agent is started as.
const Argv0 = "caisson-guest"
