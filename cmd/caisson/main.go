// SPDX-License-Identifier: Apache-2.0

// Command caisson runs code that nobody trusts.
package main

import (
	"os"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/cli"
	"github.com/caisson-run/caisson/internal/later"
)

// quick are the commands that open no door but the command line's.
var quick = map[string]bool{"run": true, "version": true}

func main() {
	caisson.Reexec()
	if len(os.Args) < 2 || !quick[os.Args[1]] {
		later.Serving.Ready()
	}
	os.Exit(cli.Main(os.Args, caisson.Drivers))
}
