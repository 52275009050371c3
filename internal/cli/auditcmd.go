// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Read and check the record of every call",
		Example: `  caisson audit ls --status refused
  caisson audit show aud_abc
  caisson audit tail -f
  caisson audit verify
  caisson audit export > calls.jsonl`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(a.auditList(), a.auditTail(), a.auditShow(), a.auditHead(), a.auditVerify(), a.auditExport(), a.auditRedact(), a.auditPrune())
	a.inState(cmd.Commands()...)
	return cmd
}

// withLog opens the record for reading, or for writing; what is changed, too, lies in a
// state directory that is there.
func (a *app) withLog(ctx context.Context, write bool, do func(*audit.Log) error) error {
	dir, err := store.Open(a.look())
	if err == nil && write {
		dir.Close()
		dir, err = store.Open(store.Options{Dir: dir.Path()})
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	log, err := audit.Open(ctx, audit.Options{Dir: dir.Path(), ReadOnly: !write})
	if err != nil {
		return err
	}
	defer log.Close()
	return do(log)
}

func (a *app) auditExport() *cobra.Command {
	var f auditFilter
	var format string
	cmd := &cobra.Command{
		Use:   "export [flags]",
		Short: "Write calls, without the content of code and streams",
		Long: `Write all calls, oldest first, or those that the flags choose, without the content
of code and streams.

jsonl is a record each line, and last a checkpoint, which is worth keeping
elsewhere. csv is for people and spreadsheets: what a spreadsheet would compute has
a ' before it. ocsf is an event each line as the Open Cybersecurity Schema Framework
has it: programs are Process Activity, connections Network Activity, and all else
that was asked for API Activity.`,
		Example: `  caisson audit export > calls.jsonl
  caisson audit export --format csv --verdict deny > refused.csv
  caisson audit export --format ocsf --since 24h | your-siem`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(time.Now()); err != nil {
				return err
			}
			return a.withLog(contextOf(cmd), false, func(log *audit.Log) error {
				var out io.Writer = a.out
				if format != audit.CSV {
					out = jsonText{a.out}
				}
				return log.Export(contextOf(cmd), out, format, f.Filter)
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	f.add(cmd, true)
	cmd.Flags().StringVar(&format, "format", audit.JSONL, "write it in `FORMAT`: jsonl, csv or ocsf")
	completeWords(cmd, "format", audit.JSONL, audit.CSV, audit.OCSF)
	return cmd
}

func (a *app) auditPrune() *cobra.Command {
	var before string
	cmd := &cobra.Command{
		Use:   "prune --before TIME",
		Short: "Drop what is known of old calls; the chain stays whole",
		Example: `  caisson audit prune --before 90d
  caisson audit prune --before 2026-01-01`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := readTime("--before", before, time.Now())
			if err != nil {
				return err
			}
			if t.IsZero() {
				return usage(cmd, "--before is missing", "say from when on calls are kept: --before 90d")
			}
			return a.withLog(contextOf(cmd), true, func(log *audit.Log) error {
				n, err := log.Prune(contextOf(cmd), t)
				if err == nil {
					fmt.Fprintf(a.out, "%d records dropped\n", n)
				}
				return err
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&before, "before", "", "calls that began before `TIME`: 90d, 2026-01-01")
	return cmd
}
