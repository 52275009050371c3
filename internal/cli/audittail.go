// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
)

func (a *app) auditTail() *cobra.Command {
	var f auditFilter
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "tail [flags]",
		Short: "Show the last calls, and with -f those that come",
		Long: `Show the last calls, oldest first. With -f it goes on: each call is shown when it
begins, as unfinished, and again when it has ended, whichever process it is of. It
waits for the system to say that something was recorded, and asks for nothing
meanwhile. Ctrl-C ends it.`,
		Example: `  caisson audit tail -f
  caisson audit tail -f --verdict deny
  caisson audit tail -n 0 -f --key ci --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(time.Now()); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM)
			defer stop()
			show := func(r audit.Record) bool {
				if asJSON {
					a.printJSON(r)
				} else {
					a.printRecord(r)
				}
				return a.out.failed == nil
			}
			return a.withLog(ctx, false, func(log *audit.Log) error {
				do := log.Last
				if follow {
					do = log.Follow
				}
				return do(ctx, f.Filter, show)
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	fs := cmd.Flags()
	f.add(cmd, false)
	fs.BoolVarP(&follow, "follow", "f", false, "go on with those that come")
	countVar(fs, &f.Limit, "lines", "n", 10, 0, maxCount, "begin with the last `N`")
	fs.BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (a *app) auditHead() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "head [flags]",
		Short: "Print what is worth keeping elsewhere: how far the record goes and what it ends with",
		Long: `Print the head of the record: how many records there are and the link of the last
one. Kept on another machine, it lets caisson audit verify --head find that older
files were put back, and that the record was begun anew. With --json it is a
checkpoint, which is signed.`,
		Example: `  caisson audit head
  caisson audit head --json > kept.json
  caisson audit verify --head 812:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withLog(contextOf(cmd), false, func(log *audit.Log) error {
				c, err := log.Checkpoint(contextOf(cmd))
				if err != nil {
					return err
				}
				if asJSON {
					a.printJSON(map[string]audit.Checkpoint{"checkpoint": c})
					return nil
				}
				_, err = fmt.Fprintln(a.out, c.Head())
				return err
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a checkpoint")
	return cmd
}

func (a *app) auditRedact() *cobra.Command {
	var reason string
	var parts []string
	cmd := &cobra.Command{
		Use:   "redact ID|DIGEST --reason TEXT",
		Short: "Delete what a call said or printed; the chain stays whole",
		Long: `Delete content that should not be in the record: a secret in a command line, or in
what a program printed. It is overwritten on disk and is not taken again; that this
was done, and why, is a record of its own. Of the call all else stays.

Content is kept once, however many calls had it: it is gone from all of them.`,
		Example: `  caisson audit redact aud_abc --part stdout --reason "a token was printed"
  caisson audit redact 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 --reason "a name"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "it takes one id or digest", "caisson audit show prints the digests of a call's content")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usage(cmd, "--reason is missing", "say why: it stands in the record")
			}
			return a.withLog(contextOf(cmd), true, func(log *audit.Log) error {
				digests := []string{args[0]}
				if len(args[0]) != 64 {
					d, err := log.Show(contextOf(cmd), args[0])
					if err != nil {
						return err
					}
					if digests, err = d.Digests(parts...); err != nil {
						return err
					}
				}
				for _, digest := range digests {
					if err := log.Redact(contextOf(cmd), digest, reason); err != nil {
						return err
					}
					fmt.Fprintf(a.out, "%s is redacted\n", digest)
				}
				return nil
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record: `TEXT`")
	emptyMeans(cmd.Flags(), "reason")
	cmd.Flags().StringSliceVar(&parts, "part", nil, "of a call, `PART`: command, params, code, stdout, stderr")
	return cmd
}
