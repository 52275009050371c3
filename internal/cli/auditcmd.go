// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/named"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
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
	cmd.AddCommand(a.auditList(), a.auditTail(), a.auditShow(), a.auditHead(), a.auditVerify(), a.auditExport(), a.auditRedact(), a.auditPrune(), a.auditSettle())
	return cmd
}

// withLog opens the record for reading, or for writing; what is changed, too, lies in a
// state directory that is there.
func withLog(ctx context.Context, write bool, do func(*audit.Log) error) error {
	dir, err := store.Open(store.Options{ReadOnly: true})
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

// auditSettle is what the program for `caisson run` alone starts where it cannot append
// to the record (journaltail.go). What is wrong it says to that program.
func (a *app) auditSettle() *cobra.Command {
	return &cobra.Command{
		Use:   settleCommand,
		Short: "Take what lies in audit.tail into the database",
		Long: `Take what short runs have appended to audit.tail into audit.db. Nobody has to:
whatever reads the record does it.`,
		Example: `  caisson audit settle`,
		Args:    noArgs,
		Hidden:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt, syscall.SIGTERM) // a run that was ended by one may wait for it
			if err := settleRecord(contextOf(cmd)); err != nil {
				a.code = exitFault
				a.printJSON(errorObject(err))
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}

// settleRecord does that. It may be for a run that ends, so it asks of the disk no more
// than it needs, and not what a run needs to begin.
func settleRecord(ctx context.Context) error {
	dir, err := store.Open(store.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer dir.Close()
	log, err := audit.Open(ctx, audit.Options{Dir: dir.Path()})
	if err != nil {
		return err
	}
	defer log.Close()
	return log.Settle(ctx)
}

func (a *app) auditList() *cobra.Command {
	var f auditFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List calls and connections, the newest first",
		Long: `List calls, and what their networks did: each connection that a sandbox made
when it has ended, with what went through and the rule that allowed it, and each
sort of attempt that was refused. One that came again is listed once more at the
end, with how often.`,
		Example: `  caisson audit ls
  caisson audit ls --status failed --since 24h
  caisson audit ls --kind connection --status refused
  caisson audit ls --verdict deny --since 2026-11-21 --until 2026-11-22
  caisson audit ls --key ci --tool run_code --limit 10 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(time.Now()); err != nil {
				return err
			}
			return withLog(contextOf(cmd), false, func(log *audit.Log) error {
				for r, err := range log.Query(contextOf(cmd), f.Filter) {
					if err != nil || a.out.failed != nil {
						return err
					}
					if asJSON {
						a.printJSON(r)
					} else {
						a.printRecord(r)
					}
				}
				return nil
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	fs := cmd.Flags()
	f.add(cmd, true)
	countVar(fs, &f.Limit, "limit", "", 100, 0, mostCount, "at most so many; 0 is all")
	fs.BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

// readTime reads a moment, or how long ago it was. Empty is no moment.
func readTime(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	bad := func(problem string) (time.Time, error) {
		return time.Time{}, &sandbox.Error{Op: flag + " " + quoted(s), Kind: sandbox.ErrInvalid, Problem: problem,
			Hint: fmt.Sprintf("write how long ago (90m, 24h, 30d; the most is %dd) or when (2026-11-21, 2026-11-21T10:00:00Z)", mostDaysAgo)}
	}
	if digits, ok := strings.CutSuffix(s, "d"); ok && digits != "" && strings.Trim(digits, "0123456789") == "" {
		// The calendar goes round: enough days before now come after it, and all calls
		// are older than that.
		days, err := strconv.Atoi(digits)
		if err != nil || days > mostDaysAgo {
			return bad("it is too long ago")
		}
		return now.AddDate(0, 0, -days), nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || d <= 0:
		return bad("it is no time")
	case d > mostDaysAgo*24*time.Hour:
		return bad("it is too long ago")
	}
	return now.Add(-d), nil
}

// mostDaysAgo is a hundred years.
const mostDaysAgo = 36500

func (a *app) printRecord(r audit.Record) {
	end := ""
	if r.Ending != nil && r.Ending.Result != nil {
		end = string(r.Ending.Result.Status)
		if res := r.Ending.Result.Resource; res != "" {
			end += " " + string(res)
		}
	}
	actor := "-"
	if r.Call != nil {
		actor = r.Call.Actor
	}
	switch c := r.Call; {
	case c == nil:
	case c.Connection != nil:
		end = audit.KindConnection
	case c.Approval != nil && (c.Kind == session.KindAsk || c.Kind == session.KindAnswer):
		end = c.Approval.State
	}
	fmt.Fprintf(a.out, "%s  %s  %-10s %-24s %-14s %s\n", r.ID, r.Time.Local().Format("2006-01-02 15:04:05"), r.Status, end,
		printable(actor), printable(deed(r)))
}

// deed is what was done, on one line. That a question about a command was put, or
// that its text was read, is not that the command was let through.
func deed(r audit.Record) string {
	command, c := typed(r.Command), r.Call
	switch {
	case c == nil:
		return command
	case c.Connection != nil:
		return passage(c.Connection)
	case command != "" && (c.Kind == string(policy.RunCommand) || c.Kind == string(policy.RunCode)):
		return command
	}
	words := []string{c.Kind}
	if c.Tool != c.Kind {
		words = append(words, c.Tool)
	}
	if c.Approval != nil && c.Kind == session.KindAnswer {
		words = append(words, c.Approval.ID)
	}
	if !strings.HasPrefix(c.Sandbox, oneShot) {
		words = append(words, c.Sandbox)
	}
	words = append(words, command)
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// oneShot is how the names of sandboxes begin that are made for one call, which say
// nothing to people.
const oneShot = "sbx_"

// passage is a connection, or a refused attempt, on one line.
func passage(c *sandbox.Connection) string {
	to := c.Host
	if to == "" {
		to = c.Address
	}
	if c.Port != 0 {
		to = net.JoinHostPort(to, strconv.Itoa(c.Port))
	}
	parts := []string{c.Protocol + " " + to}
	if c.Method != "" {
		parts[0] += " " + c.Method + " " + c.Path
	}
	if c.Host != "" && c.Address != "" {
		parts[0] += " (" + c.Address + ")"
	}
	if c.Sent+c.Received > 0 {
		parts = append(parts, "sent "+session.Size(c.Sent), "received "+session.Size(c.Received))
	}
	if c.Reason != "" {
		parts = append(parts, c.Reason)
	}
	if c.Rule != "" {
		parts = append(parts, "by "+c.Rule+" of "+c.From)
	}
	if c.Count > 1 {
		parts = append(parts, fmt.Sprintf("%d times", c.Count))
	}
	return strings.Join(parts, ", ")
}

func (a *app) auditShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [ID]",
		Short: "Show one call, the last one without an id, with its connections and what is kept of its code and output",
		Example: `  caisson audit show
  caisson audit show --json aud_abc`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "it takes one id", "caisson audit ls lists them; the beginning of an id is enough")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLog(contextOf(cmd), false, func(log *audit.Log) error {
				id, err := callNamed(contextOf(cmd), log, args)
				if err != nil {
					return err
				}
				d, err := log.Show(contextOf(cmd), id)
				if err != nil {
					return err
				}
				if asJSON {
					a.printJSON(d)
					return nil
				}
				a.printDetail(d)
				return nil
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// callNamed is the ID in args, or that of the last call: what a connection did is
// shown with its call.
func callNamed(ctx context.Context, log *audit.Log, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	for r, err := range log.Query(ctx, audit.Filter{}) {
		if err != nil {
			return "", err
		}
		if r.Call == nil || r.Call.Connection == nil {
			return r.ID, nil
		}
	}
	return "", &sandbox.Error{Op: "audit show", Kind: sandbox.ErrNotFound, Problem: "there is no call yet"}
}

func (a *app) auditVerify() *cobra.Command {
	var asJSON bool
	var kept, heads []string
	cmd := &cobra.Command{
		Use:   "verify [flags]",
		Short: "Find out whether the record was edited, cut off or reordered",
		Long: `Read the whole record and say what was edited, removed, inserted, reordered or cut
off, and where. A head or checkpoint that was kept elsewhere (caisson audit head, the
last line of an export) also finds an older copy that was put back, and a record
that was begun anew. The exit code is 1 when something is wrong.`,
		Example: `  caisson audit verify
  caisson audit verify --head 812:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
  caisson audit verify --checkpoint kept.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			points, err := readCheckpoints(kept)
			if err != nil {
				return err
			}
			for _, text := range heads {
				c, err := audit.ParseHead(text)
				if err != nil {
					return err
				}
				points = append(points, c)
			}
			return withLog(contextOf(cmd), false, func(log *audit.Log) error {
				r, err := log.Verify(contextOf(cmd), points...)
				if err != nil {
					return err
				}
				if len(r.Findings) > 0 {
					a.code = exitFault
				}
				if asJSON {
					a.printJSON(r)
					return nil
				}
				for _, f := range r.Findings {
					fmt.Fprintln(a.out, printable(f.String()))
				}
				if len(r.Findings) == 0 {
					fmt.Fprintf(a.out, "%d records, all in order\n", r.Records)
				}
				return nil
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringArrayVar(&kept, "checkpoint", nil, "hold the record against a checkpoint kept elsewhere: `FILE`")
	cmd.Flags().StringArrayVar(&heads, "head", nil, "hold the record against a `HEAD` kept elsewhere, as caisson audit head prints it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// readCheckpoints reads files that hold a checkpoint, or end with the line of
// one, as an export does.
func readCheckpoints(files []string) ([]audit.Checkpoint, error) {
	var points []audit.Checkpoint
	for _, name := range files {
		bad := func(problem string, cause error) error {
			return &sandbox.Error{Op: "--checkpoint " + quoted(name), Kind: sandbox.ErrInvalid, Problem: problem,
				Hint: "keep the last line of caisson audit export", Cause: cause}
		}
		last, err := lastLine(name)
		if err != nil {
			return nil, bad("it cannot be read", err)
		}
		var line struct{ Checkpoint *audit.Checkpoint }
		if err := json.Unmarshal(last, &line); err != nil || line.Checkpoint == nil {
			return nil, bad("it holds no checkpoint", err)
		}
		points = append(points, *line.Checkpoint)
	}
	return points, nil
}

// lastLine is the last line of a file that says something.
func lastLine(name string) (last []byte, err error) {
	f, err := named.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, mostLine); lines.Scan(); {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			last = append(last[:0], line...)
		}
	}
	return last, lines.Err()
}

const mostLine = 64 << 20 // bytes; that of a record has its program and what it wrote

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
			return withLog(contextOf(cmd), false, func(log *audit.Log) error {
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
			return withLog(contextOf(cmd), true, func(log *audit.Log) error {
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
