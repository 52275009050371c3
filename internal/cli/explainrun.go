// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// explainRun says what a run would have, and runs nothing.
func (a *app) explainRun(ctx context.Context, f *runFlags, s *opened, call *session.Call) error {
	call.OnNotice = func(text string) { a.note("%s", text) }
	if f.tty {
		call.TTY = &sandbox.Terminal{Size: sandbox.WindowSize{Rows: 24, Cols: 80}}
	}
	p, err := s.Preview(ctx, call)
	if err != nil {
		return err
	}
	off := ownSandboxes(p.Clauses)
	if f.json {
		a.printJSON(struct {
			*session.Preview
			Policy   string   `json:"policy,omitempty"`
			Terminal bool     `json:"terminal"`
			Off      []string `json:"off,omitempty"`
		}{p, s.PolicyName(), f.tty, off})
		return nil
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-24s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	line("terminal", "%v", f.tty)
	for _, c := range p.Clauses {
		how := ""
		if answer := c.Levels[p.Isolation]; answer.Enforcement != sandbox.Enforced {
			how = ": " + strings.TrimSuffix(string(answer.Enforcement)+", "+answer.Detail, ", ")
		}
		line(c.Name, "%s  (%s)%s", c.Value, c.From, how)
	}
	for _, v := range p.Volumes {
		if v.ID == "" {
			line("volume "+v.Name, "is new")
			continue
		}
		line("volume "+v.Name, "%s, %s, used %s", v.ID, v.Size(), v.Used.Local().Format("2006-01-02 15:04"))
	}
	for _, t := range p.Posture.Toolchains {
		line("toolchain", "%s", t)
	}
	for _, l := range p.Left {
		line("toolchain left out", "%s: %s", l.Dir, l.Why)
	}
	for _, m := range append(p.Posture.Mounts, p.Posture.Open...) {
		line("note", "%s", m)
	}
	for _, o := range off {
		line("off", "%s", o)
	}
	if p.Kept {
		line("changes", "kept as a change set; nothing of it is on this host before caisson changes apply")
	}
	return nil
}

// ownSandboxes says which agents' own sandboxes a policy switches off.
func ownSandboxes(clauses []policy.Clause) (off []string) {
	for _, c := range clauses {
		switch {
		case c.Name == "env.set.GEMINI_SANDBOX":
			off = append(off, "Gemini CLI's own sandbox, by GEMINI_SANDBOX: caisson's is around it")
		case c.Name == "files.volumes" && strings.Contains(c.Value, ".codex/config.toml"):
			off = append(off, "Codex' own sandbox, by ~/.codex/config.toml of a new home: caisson's is around it")
		}
	}
	return off
}
