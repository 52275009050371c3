// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

// auditFilter says which calls are wanted, as flags do.
type auditFilter struct {
	audit.Filter
	status, verdict, since, until, key string
}

// add adds the flags; without dates where those make no sense.
func (f *auditFilter) add(cmd *cobra.Command, dates bool) {
	fs := cmd.Flags()
	fs.StringVar(&f.status, "status", "", "only calls of a `STATUS`: allowed, refused, failed, unfinished, pruned")
	fs.StringVar(&f.verdict, "verdict", "", "only calls of a `VERDICT`: allow, deny, ask")
	fs.StringVar(&f.Actor, "actor", "", "only calls of `WHO`: ada (uid:1000 where that user has no name), key:ci, approver:ada")
	fs.StringVar(&f.key, "key", "", "only calls of the key called `NAME`, or with that ID where it has no name")
	fs.StringVar(&f.Tool, "tool", "", "only calls of the tool `NAME`")
	fs.StringVar(&f.Sandbox, "sandbox", "", "only calls in the sandbox `ID`")
	fs.StringVar(&f.Kind, "kind", "", "only calls of a `KIND`: run_command, run_code, start_sandbox, call_tool, connection, …")
	fs.StringVar(&f.Rule, "rule", "", "only calls that a rule decided whose name or place has `TEXT` in it: ci.yaml:12")
	fs.StringVar(&f.Of, "of", "", "only connections of the call `ID`")
	completeWords(cmd, "status", statuses()...)
	completeWords(cmd, "verdict", verdicts()...)
	completeWords(cmd, "kind", auditKinds()...)
	if dates {
		fs.StringVar(&f.since, "since", "", "only calls since `TIME`: 24h, 2026-11-21, 2026-11-21T10:00:00Z")
		fs.StringVar(&f.until, "until", "", "only calls before `TIME`: the same")
	}
}

func statuses() []string {
	return []string{string(audit.Allowed), string(audit.Refused), string(audit.Failed), string(audit.Unfinished), string(audit.Pruned)}
}

func verdicts() []string { return []string{string(audit.Allow), string(audit.Deny), string(audit.Ask)} }

// read reads what the flags say.
func (f *auditFilter) read(now time.Time) (err error) {
	f.Status, f.Verdict = audit.Status(f.status), audit.Verdict(f.verdict)
	err = cmp.Or(oneOf("status", f.status, statuses()...), oneOf("verdict", f.verdict, verdicts()...), oneOf("kind", f.Kind, auditKinds()...))
	if err != nil {
		return err
	}
	if f.key != "" {
		if f.Actor != "" {
			return &sandbox.Error{Op: "--key", Kind: sandbox.ErrInvalid, Problem: "--actor is there, too", Hint: "leave one of them out"}
		}
		f.Actor = "key:" + f.key
	}
	if f.Since, err = readTime("--since", f.since, now); err != nil {
		return err
	}
	f.Until, err = readTime("--until", f.until, now)
	return err
}
