// SPDX-License-Identifier: Apache-2.0

//go:build linux && !embedengine

package caisson

import (
	"os"

	"github.com/caisson-run/caisson/egress/router"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox/gvisor/shim"
)

func reexecEngine() {
	shim.Reexec()
	if len(os.Args) > 0 && os.Args[0] == wire.Argv0 {
		router.Main()
	}
}
