// SPDX-License-Identifier: Apache-2.0

// Package halves is all that runs in processes of their own around a gVisor
// sandbox: its keeper, gVisor's kernel and file server, and its umounter. A
// program that links it can be each of them; cmd/caisson-engine is nothing else.
package halves

import (
	"os"

	_ "github.com/caisson-run/caisson/sandbox/gvisor/arrival" // takes over before main
	"github.com/caisson-run/caisson/sandbox/gvisor/sentry"
	"github.com/caisson-run/caisson/sandbox/gvisor/shim"
	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
)

// Reexec takes over in a process that was started as one of them, and does not
// return; elsewhere it returns at once.
func Reexec() {
	switch {
	case sentry.Wanted(os.Args):
		sentry.Main()
	case len(os.Args) > 0 && os.Args[0] == wire.Argv0:
		shim.Main()
	}
}
