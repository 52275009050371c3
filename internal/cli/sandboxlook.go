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
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

func (a *app) sandboxStats(d *daemon) *cobra.Command {
	var since time.Duration
	return a.sub(d, sub{
		use: "stats ID", short: "Show what a sandbox uses", args: some(1, 1, "the ID of a sandbox"),
		example: `  caisson sandbox stats ID
  caisson sandbox stats ID --since 10m --json`,
		flags: func(cmd *cobra.Command) {
			timeVar(cmd.Flags(), &since, "since", 0, leastTime, maxTime, "and what it used since so long ago")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			all, err := c.Usage(ctx, args[0], time.Now().Add(-since))
			if err != nil {
				return err
			}
			if d.json {
				a.printJSON(all)
				return nil
			}
			return a.table("AT\tCPU\tCPU%\tMEMORY\tPROCESSES\tDISK", func(w *tabwriter.Writer) {
				for _, r := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.At.Local().Format(time.TimeOnly), shown(r.CPU, func(s client.Seconds) string { return s.Duration().Round(time.Millisecond).String() }),
						shown(r.CPUPercent, func(p float64) string { return strconv.FormatFloat(p, 'f', 1, 64) }), shown(r.Memory, session.Size), shown(r.Processes, strconv.Itoa), shown(r.Disk, session.Size))
				}
			})
		},
	})
}

// shown is a figure, or a dash where it was not measured.
func shown[T any](v *T, as func(T) string) string {
	if v == nil {
		return "-"
	}
	return as(*v)
}

func (a *app) sandboxLogs(d *daemon) *cobra.Command {
	var follow bool
	return a.sub(d, sub{
		use: "logs ID", short: "Show the programs of a sandbox that have ended, and what they wrote", args: some(1, 1, "the ID of a sandbox"),
		long: `Show the programs of a sandbox that have ended, and what they wrote: as much of
the last ones as the daemon keeps in memory while the sandbox lives.`,
		example: "  caisson sandbox logs ID\n  caisson sandbox logs ID --follow",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the sandbox ends")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			var since int64
			for {
				wait := time.Duration(0)
				if follow {
					wait = 30 * time.Second
				}
				all, next, err := c.Logs(ctx, args[0], since, wait)
				if err != nil {
					if since > 0 && errors.Is(err, sandbox.ErrNotFound) {
						return nil // it has ended
					}
					return err
				}
				since = next
				for _, l := range all {
					a.showLog(d, &l)
				}
				if !follow {
					return nil
				}
			}
		},
	})
}

// showLog prints one program that has ended. What it wrote is never obeyed by the
// terminal.
func (a *app) showLog(d *daemon, l *client.Log) {
	if d.json {
		a.printJSON(l)
		return
	}
	how := l.Status
	if l.ExitCode != nil {
		how += " " + strconv.Itoa(*l.ExitCode)
	}
	fmt.Fprintf(a.out, "%s %s: %s\n", l.At.Local().Format(time.DateTime), printable(strings.Join(l.Command, " ")), printable(how))
	for _, s := range []string{l.Stdout, l.Stderr} {
		for line := range strings.Lines(s) {
			fmt.Fprintf(a.out, "  %s\n", printable(strings.TrimRight(line, "\r\n")))
		}
	}
}
