// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
)

func (a *app) sandboxChanges(d *daemon) *cobra.Command {
	var ignored bool
	return a.sub(d, sub{
		use: "changes ID", short: "Keep what was changed so far in a sandbox's workspace", args: some(1, 1, "the ID of a sandbox"),
		long: `Keep what was changed so far in a sandbox's workspace as a change set, which caisson
changes shows and applies on the daemon's host. The sandbox stands still meanwhile, and
goes on.

The workspace is the one that the policy of the sandbox's key names:
files: {workspace: {source: DIR}}. It has to be copy-on-write, which it is by default.`,
		example: "  caisson sandbox changes ID\n  caisson sandbox changes ID --keep-ignored --json",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&ignored, "keep-ignored", false, "keep also what .gitignore files ignore")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			kept, err := c.KeepChanges(ctx, args[0], ignored)
			switch {
			case err != nil:
				return err
			case d.json:
				a.printJSON(map[string]any{"changes": kept})
			case kept == nil:
				a.note("nothing was changed")
			default:
				s := sandbox.Changes(*kept)
				s.ID = printable(s.ID)
				a.showChanges(&s)
			}
			return nil
		},
	})
}
