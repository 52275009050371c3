// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"path/filepath"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// RuleHostRuns is the rule about what the host itself runs later.
const RuleHostRuns = "built-in: what later runs on the host"

// Found is what came into being in read-write mounts that the host may run. It is known
// when the cleanup has run.
type Found struct {
	// Live says that there is a read-write mount.
	Live bool
	// Ran is set by the caller when code may have run; without it nothing is looked for.
	Ran bool
	// Findings are what can run something, and Plain sentences about new repositories that
	// cannot.
	Findings []sandbox.Finding
	Plain    []string
}

// lookAfter has a read-write mount looked through when the sandbox has ended: for what
// came into being in it that the host may run. What was hidden or kept is known to base.
// It is a step of undoing, after the sandbox is gone and before its placeholders are.
func (e *Environment) lookAfter(src *hostpath.Source, base *hostpath.Baseline) {
	found := e.Found
	found.Live = true
	e.o.Host.Undo.Add(func(ctx context.Context) error {
		if !found.Ran {
			return nil
		}
		for _, f := range base.Look(ctx) {
			name := filepath.Join(src.Name, f.Rel)
			if f.Plain {
				found.Plain = append(found.Plain, sandbox.Quoted(name)+": "+f.Problem)
				continue
			}
			found.Findings = append(found.Findings, sandbox.Finding{Kind: sandbox.FindingHostFile, Text: name, Problem: f.Problem, Action: sandbox.ActionInspect,
				Rule: RuleHostRuns, Hint: "look at it before you run git, an editor or an agent there"})
		}
		return nil
	})
}
