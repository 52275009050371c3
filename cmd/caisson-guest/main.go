// SPDX-License-Identifier: Apache-2.0

// Command caisson-guest is the guest agent, the first process of a sandbox. It also makes
// the requests that policies declare, each in a sandbox of its own.
//
// It uses few threads by itself. Go looks into control groups for how many there
// should be when it begins; it is not to keep them open and look again later:
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/boot"
)

func main() {
	boot.Init()
	agent.InitFetch()
	agent.Main()
}
