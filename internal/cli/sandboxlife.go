// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
)

func (a *app) sandboxPause(d *daemon) *cobra.Command {
	var files bool
	return a.sub(d, sub{
		use: "pause ID", short: "Stop a sandbox until it is resumed or killed", args: some(1, 1, "the ID of a sandbox"),
		example: `  caisson sandbox pause ID
  caisson sandbox pause ID --files-only`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&files, "files-only", false, "keep its files and not its memory: resumed, it begins anew with none of its processes")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			pause := c.Pause
			if files {
				pause = c.PauseFiles
			}
			b, err := pause(ctx, args[0])
			if err != nil {
				return err
			}
			if b.Kept == "memory" && !d.json {
				a.note("it stays in memory, and ends with the daemon")
			}
			a.showBox(d, b)
			return nil
		},
	})
}

// timed is a subcommand about one sandbox and a time that it gets.
func (a *app) timed(d *daemon, use, short, help string, do func(*client.Client, context.Context, string, time.Duration) (*client.Sandbox, error), show func(*daemon, *client.Sandbox)) *cobra.Command {
	var timeout time.Duration
	word, _, _ := strings.Cut(use, " ")
	return a.sub(d, sub{
		use: use, short: short, args: some(1, 1, "the ID of a sandbox"),
		example: "  caisson sandbox " + word + " ID --timeout 1h",
		flags:   func(cmd *cobra.Command) { timeVar(cmd.Flags(), &timeout, "timeout", 0, leastTime, maxTime, help) },
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			b, err := do(c, ctx, args[0], timeout)
			if err != nil {
				return err
			}
			show(d, b)
			return nil
		},
	})
}

func (a *app) sandboxResume(d *daemon) *cobra.Command {
	return a.timed(d, "resume ID", "Let a paused sandbox go on", "let it live for so long from now on (as long as before)", (*client.Client).Resume, a.showAnew)
}

func (a *app) sandboxExtend(d *daemon) *cobra.Command {
	return a.timed(d, "extend ID", "Let a sandbox live for longer", "let it live for at least so long from now on (5m)", (*client.Client).Extend, a.showBox)
}

func (a *app) sandboxSnapshot(d *daemon) *cobra.Command {
	var name string
	return a.sub(d, sub{
		use: "snapshot ID", short: "Write a running sandbox down, and print the snapshot's ID", args: some(1, 1, "the ID of a sandbox"),
		example: `  caisson sandbox snapshot ID --name ready
  caisson sandbox create --snapshot SNAPSHOT`,
		flags: func(cmd *cobra.Command) { cmd.Flags().StringVar(&name, "name", "", "call it `NAME`") },
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			s, err := c.Snapshot(ctx, args[0], name)
			switch {
			case err != nil:
				return err
			case d.json:
				a.printJSON(s)
			default:
				fmt.Fprintln(a.out, printable(s.ID))
			}
			return nil
		},
	})
}

func (a *app) sandboxSnapshots(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "snapshots [ID]", short: "List snapshots, of one sandbox or all", args: some(0, 1, "the ID of a sandbox, or nothing"),
		example: "  caisson sandbox snapshots --json",
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			all, err := c.Snapshots(ctx, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if d.json {
				a.printJSON(all)
				return nil
			}
			return a.table("ID\tNAME\tSANDBOX\tCREATED", func(w *tabwriter.Writer) {
				for _, s := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", dash(s.ID), dash(s.Name), dash(s.Sandbox), s.Created.Local().Format(time.DateTime))
				}
			})
		},
	})
}

func (a *app) sandboxFork(d *daemon) *cobra.Command {
	var count int
	var timeout time.Duration
	return a.sub(d, sub{
		use: "fork ID", short: "Make copies of a running sandbox, and print their IDs", args: some(1, 1, "the ID of a sandbox"),
		example: "  caisson sandbox fork ID --count 4",
		flags: func(cmd *cobra.Command) {
			countVar(cmd.Flags(), &count, "count", "", 1, 1, 100, "make so many")
			timeVar(cmd.Flags(), &timeout, "timeout", 0, leastTime, maxTime, "let each live for so long (5m)")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			all, err := c.Fork(ctx, args[0], count, timeout)
			if err != nil {
				return err
			}
			var errs []error
			for _, f := range all {
				if f.Err != nil {
					errs = append(errs, f.Err)
					continue
				}
				a.showBox(d, f.Sandbox)
			}
			return errors.Join(errs...)
		},
	})
}

func (a *app) sandboxKill(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "kill ID...", short: "End sandboxes, or remove snapshots; nothing of them is left", args: some(1, 0, "IDs of sandboxes or snapshots"),
		example: "  caisson sandbox kill ID\n  caisson sandbox kill $(caisson sandbox ls --json | jq -r '.[].id')",
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			var errs []error
			for _, id := range args {
				if strings.HasPrefix(id, "s") {
					errs = append(errs, c.DeleteSnapshot(ctx, id))
				} else {
					errs = append(errs, c.Kill(ctx, id))
				}
			}
			return errors.Join(errs...)
		},
	})
}

func (a *app) sandboxURL(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "url ID PORT", short: "Print where a port of a sandbox is reached", args: some(2, 2, "the ID of a sandbox and a port"),
		example: "  curl \"$(caisson sandbox url ID 8080)\"",
		run: func(ctx context.Context, cmd *cobra.Command, c *client.Client, args []string) error {
			n, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || n == 0 {
				return usage(cmd, printable(args[1])+" is no port", "ports are 1 to 65535")
			}
			p, err := c.Port(ctx, args[0], uint16(n))
			switch {
			case err != nil:
				return err
			case d.json:
				a.printJSON(p)
			default:
				fmt.Fprintln(a.out, printable(p.URL))
			}
			return nil
		},
	})
}
