// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"

	_ "github.com/caisson-run/caisson/sandbox/gvisor/prestart" // takes over before main
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
	"github.com/caisson-run/caisson/sandbox/gvisor/sentry"
)

// Reexec takes over in a process that was started as a shim, a gofer or a sentry, and
// does not return; elsewhere it returns at once. cmd/caisson-engine is nothing else.
func Reexec() {
	switch {
	case sentry.Wanted(os.Args):
		sentry.Main()
	case len(os.Args) > 0 && os.Args[0] == protocol.Argv0:
		Main()
	}
}
