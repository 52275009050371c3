// SPDX-License-Identifier: Apache-2.0

package guest

// AgentArgv0 is what the agent is started as.
//
// `make build` embeds cmd/caisson-guest, a slim build for the same architecture, packed
// ([OpenAgent]). A binary built by `go install` has none and is its own agent: larger, and
// the same code.
const AgentArgv0 = "caisson-guest"
