// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"path/filepath"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// lookAfter has a read-write mount looked through when the sandbox has ended: for what
// came into being in it that the host may run. What was hidden or kept is known to base.
// It is a step of undoing, after the sandbox is gone and before its placeholders are.
func (r *run) lookAfter(src *hostpath.Source, base *hostpath.Baseline) {
	r.live = true
	r.undo.add(func(ctx context.Context) error {
		if !r.ran {
			return nil
		}
		for _, f := range base.Look(ctx) {
			name := filepath.Join(src.Name, f.Rel)
			if f.Plain {
				r.plain = append(r.plain, quoted(name)+": "+f.Problem)
				continue
			}
			r.found = append(r.found, sandbox.Finding{Kind: sandbox.FindingHostFile, Text: name, Problem: f.Problem, Action: sandbox.ActionInspect,
				Rule: "built-in: what later runs on the host", Hint: "look at it before you run git, an editor or an agent there"})
		}
		return nil
	})
}

// mostPlain is how many new repositories are named that nothing speaks against.
const mostPlain = 5

// foundIn adds what was found to a result, and says what is none. Where there is no
// result it is said, too.
func (r *run) foundIn(res *sandbox.Result) {
	for i, s := range r.plain {
		if i == mostPlain {
			s = "more new repositories, whose configuration makes git run nothing"
		}
		if i <= mostPlain {
			r.notice(s)
		}
	}
	if res == nil {
		for _, f := range r.found {
			r.notice("finding: " + quoted(f.Text) + ": " + f.Problem)
		}
		return
	}
	res.Findings = append(res.Findings, r.found...)
}

// tellFound says what was found where a sandbox has lived, to whoever runs caisson.
func (b *Sandboxes) tellFound(id string, r *run) {
	for _, f := range r.found {
		b.o.Notice("sandbox " + id + ": finding: " + quoted(f.Text) + ": " + f.Problem)
	}
}
