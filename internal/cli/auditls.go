// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
)

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
			limit, n := f.Limit, 0
			if limit > 0 {
				f.Limit++ // one more says that there are more
			}
			return a.withLog(contextOf(cmd), false, func(log *audit.Log) error {
				for r, err := range log.Query(contextOf(cmd), f.Filter) {
					if err != nil || a.out.failed != nil {
						return err
					}
					if n++; limit > 0 && n > limit {
						a.say("these are the newest %d; --limit N lists more, --limit 0 all", limit)
						break
					}
					if n == 1 && !asJSON {
						fmt.Fprintf(a.out, recordLine, "ID", "TIME", "CALL", "ENDED", "ACTOR", "WHAT")
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
	countVar(fs, &f.Limit, "limit", "", 100, 0, maxCount, "at most so many; 0 is all")
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
		return time.Time{}, &sandbox.Error{Op: flag + " " + sandbox.Quoted(s), Kind: sandbox.ErrInvalid, Problem: problem,
			Hint: fmt.Sprintf("write how long ago (90m, 24h, 30d; the most is %dd) or when (2026-11-21, 2026-11-21T10:00:00Z)", maxDaysAgo)}
	}
	if digits, ok := strings.CutSuffix(s, "d"); ok && digits != "" && strings.Trim(digits, "0123456789") == "" {
		// The calendar goes round: enough days before now come after it, and all calls
		// are older than that.
		days, err := strconv.Atoi(digits)
		if err != nil || days > maxDaysAgo {
			return bad("it is too long ago")
		}
		return now.AddDate(0, 0, -days), nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || d <= 0:
		return bad("it is no time")
	case d > maxDaysAgo*24*time.Hour:
		return bad("it is too long ago")
	}
	return now.Add(-d), nil
}

// maxDaysAgo is a hundred years.
const maxDaysAgo = 36500

// recordLine is the line of a record, and of the head.
const recordLine = "%-30s  %-19s  %-10s %-24s %-14s %s\n"

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
	case c.Approval != nil && (c.Kind == question.KindAsk || c.Kind == question.KindAnswer):
		end = c.Approval.State
	}
	fmt.Fprintf(a.out, recordLine, r.ID, r.Time.Local().Format("2006-01-02 15:04:05"), r.Status, end,
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
	if c.Approval != nil && c.Kind == question.KindAnswer {
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
