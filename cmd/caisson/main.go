// SPDX-License-Identifier: Apache-2.0

// Command caisson runs untrusted code.
package main

import (
	"os"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/cli"
	"github.com/caisson-run/caisson/internal/linux/weakroot"
)

func main() {
	caisson.Reexec()
	if code, done := weakroot.Enter(); done {
		os.Exit(code)
	}
	os.Exit(cli.Main(os.Args, caisson.DriversIn))
}
