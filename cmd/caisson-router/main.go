// SPDX-License-Identifier: Apache-2.0

// Command caisson-router is the router of a sandbox's network, without the rest
// of caisson: see internal/linux/engine.
//
// How many processors it uses is said by its owner. Go looks into the host's control
// groups for that when it begins; what it finds there is not to stay open in it:
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"

	"github.com/caisson-run/caisson/egress/router"
	"github.com/caisson-run/caisson/egress/wire"
)

func main() {
	if len(os.Args) > 0 && os.Args[0] == wire.Argv0 {
		router.Main()
	}
	fmt.Fprintln(os.Stderr, "caisson-router is started by caisson, not by hand")
	os.Exit(125)
}
