// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
)

func (a *app) sandboxNetwork(d *daemon) *cobra.Command {
	var r client.Reach
	var none bool
	return a.sub(d, sub{
		use: "network ID", short: "Show or change what a sandbox may reach", args: some(1, 1, "the ID of a sandbox"),
		long: `Show what a sandbox may reach, or change it while it lives: within what the policy
of the key grants. What is said replaces all that was said before; connections that
are not allowed any more are closed.`,
		example: `  caisson sandbox network ID
  caisson sandbox network ID --allow pypi.org --allow '*.pythonhosted.org'
  caisson sandbox network ID --all --deny pypi.org
  caisson sandbox network ID --no-network`,
		flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringArrayVar(&r.Allow, "allow", nil, "let it reach `HOST[:PORT]`, and what else has this flag, only")
			f.BoolVar(&r.All, "all", false, "let it reach all that the policy grants")
			f.StringArrayVar(&r.Deny, "deny", nil, "take `HOST[:PORT]` away from that")
			f.BoolVar(&none, "no-network", false, "let it reach nothing")
		},
		run: func(ctx context.Context, cmd *cobra.Command, c *client.Client, args []string) (err error) {
			some := len(r.Allow) > 0
			switch {
			case none && (r.All || some || len(r.Deny) > 0) || r.All && some:
				return usage(cmd, "--allow, --all and --no-network each say something else", "take one of them")
			case len(r.Deny) > 0 && !r.All && !some:
				return usage(cmd, "--deny says what is taken away, and not from what: what is said replaces all that was said before",
					"add --all or --allow, with all that it is to reach; --no-network closes it")
			}
			var b *client.Sandbox
			if none || r.All || some {
				b, err = c.SetNetwork(ctx, args[0], r)
			} else {
				b, err = c.Get(ctx, args[0])
			}
			if err != nil {
				return err
			}
			a.showReach(d, b)
			return nil
		},
	})
}

// showReach prints what a sandbox may reach, one entry a line.
func (a *app) showReach(d *daemon, b *client.Sandbox) {
	if d.json {
		a.printJSON(b)
		return
	}
	for _, e := range b.Network {
		fmt.Fprintln(a.out, "allow", printable(e))
	}
	for _, e := range b.Denied {
		fmt.Fprintln(a.out, "deny", printable(e))
	}
	if len(b.Network) == 0 {
		a.note("it reaches nothing")
	}
}
