// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/store"
)

// inState adds --state to commands that keep something in the state directory, or look at
// what is kept there. It is the same flag in all of them, each time behind the command:
// caisson sandbox has one of that name for another purpose.
func (a *app) inState(cmds ...*cobra.Command) {
	for _, cmd := range cmds {
		cmd.Flags().StringVar(&a.state, "state", "", "the state directory is `DIR` (or $CAISSON_STATE)")
		if err := cmd.MarkFlagDirname("state"); err != nil {
			panic(err) // it was just added
		}
	}
}

// place is the state directory that was named, or else the usual one.
func (a *app) place() store.Options { return store.Options{Dir: a.state} }

// look is place for who only looks at what is there, or takes some of it away.
func (a *app) look() store.Options { return store.Options{Dir: a.state, ReadOnly: true} }
