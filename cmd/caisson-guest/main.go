// SPDX-License-Identifier: Apache-2.0

// Command caisson-guest is the guest agent, the first process of a sandbox; and what makes
// the requests that policies declare, from sandboxes of their own.
package main

import (
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/fetch"
)

func main() {
	fetch.Init()
	agent.Main()
}
