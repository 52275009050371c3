// SPDX-License-Identifier: Apache-2.0

// Command caisson-engine is what runs around a gVisor sandbox, without the rest
// of caisson: see internal/linux/engine.
package main

import (
	"fmt"
	"os"

	"github.com/caisson-run/caisson/sandbox/gvisor/halves"
)

func main() {
	halves.Reexec()
	fmt.Fprintln(os.Stderr, "caisson-engine is started by caisson, not by hand")
	os.Exit(125)
}
