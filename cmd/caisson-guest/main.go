// SPDX-License-Identifier: Apache-2.0

// Command caisson-guest is the guest agent, the first process of a sandbox.
package main

import "github.com/caisson-run/caisson/guest/agent"

func main() { agent.Main() }
