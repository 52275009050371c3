// SPDX-License-Identifier: Apache-2.0

// Command caisson-engine is what runs around a gVisor sandbox, without the rest
// of caisson: see internal/linux/engine.
//
// How many processors its parts use is said by them: the keeper of a sandbox and
// gVisor's file server use one, its kernel all there are. Go looks into the host's
// control groups for that when they begin; what it finds there is not to stay open
// in them, next to untrusted code:
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"

	"github.com/caisson-run/caisson/sandbox/gvisor/shim"
)

func main() {
	shim.Reexec()
	fmt.Fprintln(os.Stderr, "caisson-engine is started by caisson, not by hand")
	os.Exit(125)
}
