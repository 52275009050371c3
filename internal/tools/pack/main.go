// SPDX-License-Identifier: Apache-2.0

// Command pack packs what make builds: the programs that caisson carries, and one static
// binary as a Debian package. It runs on any system, and gives the same bytes each time.
package main

import (
	"errors"
	"fmt"
	"os"
)

const usage = `usage: pack program PROGRAM OUTPUT  (makes OUTPUT.zst and its label OUTPUT.txt)
       pack quick PROGRAM OUTPUT    (makes OUTPUT.zst, unpacked in half the time)
       pack deb [FLAGS]             (makes a Debian package)`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "program":
		return packProgram(args[1], args[2])
	case len(args) == 3 && args[0] == "quick":
		return packQuick(args[1], args[2])
	case len(args) > 0 && args[0] == "deb":
		return packDeb(args[1:])
	}
	return errors.New(usage)
}
