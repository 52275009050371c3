// SPDX-License-Identifier: Apache-2.0

//go:build lean

// Command caisson-run is `caisson run`, and nothing else: the program that such a
// command line begins in, because half of the time of a short run is the start of the
// program. It is built with the tag lean, without what only other commands, policy
// files, container images and engines need, and lies in one file with cmd/caisson
// (internal/tools/onefile), where it hands over what is not for it (internal/linux/whole).
//
// How many processors its threads may use at once is not looked up in control groups,
// which costs as much as opening the record: it is over too soon to share anything.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"

	_ "github.com/caisson-run/caisson/cmd/caisson/begin" // begins, or hands over, before the rest is initialised
	"github.com/caisson-run/caisson/internal/cli"
	"github.com/caisson-run/caisson/internal/linux/whole"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
	"github.com/caisson-run/caisson/sandbox/gvisor/newborn"
	"github.com/caisson-run/caisson/sandbox/process"
)

func main() {
	if whole.Marked() { // it is not in that file
		fmt.Fprintln(os.Stderr, "caisson:", whole.Exec())
		os.Exit(125)
	}
	whole.Before = newborn.Discard
	code := cli.Main(os.Args, drivers)
	newborn.Discard()
	os.Exit(code)
}

// drivers are the levels whose sandboxes this program can make.
func drivers() map[string]sandbox.Driver {
	return map[string]sandbox.Driver{
		gvisor.Name:  gvisor.New(gvisor.Options{}),
		process.Name: process.New(process.Options{}),
	}
}
