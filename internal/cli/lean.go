// SPDX-License-Identifier: Apache-2.0

//go:build lean

package cli

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/linux/whole"
	"github.com/caisson-run/caisson/sandbox"
)

// This file stands for commands.go in the program that is for `caisson run` alone
// (cmd/caisson-run). Package begin has guessed that it is the right one.

func (a *app) commands() []*cobra.Command { return []*cobra.Command{a.runCommand()} }

func probed([]string) (code int, inside bool) { return 0, false }

// elsewhere has the whole program carry out what this one has no packages for: images,
// policies, the agent inside, other levels. It returns only where that is not so, or
// with an error. Nothing has been done yet, and standard input not been read.
func (a *app) elsewhere(f *runFlags) error {
	known := f.isolation == "" || a.drivers()[f.isolation] != nil
	if f.image == "" && f.policy == "" && !f.tty && len(f.collect) == 0 && known {
		return nil
	}
	return &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: "the rest of caisson's program cannot be executed",
		Hint: "mount /proc", Cause: whole.Exec()}
}
