// SPDX-License-Identifier: Apache-2.0

// Command onefile puts a second program into the file of a first one: cmd/caisson-run,
// which `caisson run` begins in, into caisson's. The same two give the same bytes.
//
// Both are static programs at fixed addresses, which must not overlap. The kernel maps
// the segments of both, of which it reads only what is used (elf(5), load_elf_binary in
// fs/binfmt_elf.c), and starts the process at an entry of some fifty bytes that decides
// by the arguments whose own entry comes next; see entry.go. To everything that looks at
// the file it is the first program: its sections, build information and notes stay. What
// is added has sections behind them, so that the file can be stripped.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: onefile WHOLE LEAN OUTPUT")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "onefile:", err)
		os.Exit(1)
	}
}

func write(whole, lean, output string) error {
	w, err := os.ReadFile(whole)
	if err != nil {
		return err
	}
	l, err := os.ReadFile(lean)
	if err != nil {
		return err
	}
	both, err := join(w, l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil { // as go build does
		return err
	}
	// Anew, and not into the old one: somebody may be running that.
	if err := os.Remove(output); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(output, both, 0o755)
}
