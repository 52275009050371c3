// SPDX-License-Identifier: Apache-2.0

// Command caisson runs untrusted code.
package main

import (
	"os"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/cli"
)

func main() {
	caisson.Reexec()
	os.Exit(cli.Main(os.Args, caisson.Drivers))
}
