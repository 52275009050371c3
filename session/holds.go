// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// holdLimits notes in held how those in force hold. It refuses one that was asked for and
// does not, and tells which of the defaults do not.
func holdLimits(call *Call, plan *policy.Plan, caps sandbox.Capabilities, held map[sandbox.LimitName]sandbox.Enforcement) error {
	var lacking Lacking
	for _, name := range sandbox.LimitNames() {
		if !plan.Limits.InForce(name) {
			continue
		}
		if err := call.beyondHost(name); err != nil {
			return err
		}
		c := Clause(caps, name)
		held[name] = c.Enforcement
		if c.Enforcement == sandbox.Enforced {
			continue
		}
		asked, why := plan.Limits.Explicit[name], hintOr(c.Detail, "this level does not hold it")
		if asked && !plan.BestEffort {
			return &sandbox.Error{Op: "limit " + string(name), Kind: sandbox.ErrUnsupported,
				Problem: fmt.Sprintf("it cannot be enforced on %s here: %s", plan.Isolation, why),
				Hint:    hintOr(c.Remedy, "drop the limit") + "; or run with less: " + call.withLess(), Rule: ruleOf(plan, "limits."+string(name))}
		}
		if c.Enforcement == sandbox.Off {
			plan.Limits.Clear(name) // a driver refuses what it cannot hold
		}
		if asked {
			call.notice(fmt.Sprintf("limit %s is %s: %s", name, c.Enforcement, why))
		} else {
			lacking.add(name, c.Enforcement, why)
		}
	}
	if len(lacking.Limits) > 0 && call.OnLacking != nil {
		call.OnLacking(lacking)
	}
	return nil
}

// withLess is how a call like this one says that it may be run with less.
func (c *Call) withLess() string {
	if c.Step != nil {
		return "best_effort: true in a policy, caisson template build --best-effort"
	}
	return "best_effort: true in a policy, caisson run --best-effort"
}

// Lacking are default limits that do not hold here as they do elsewhere.
type Lacking struct {
	Limits []Held
	why    []string
}

// Held is how a limit holds.
type Held struct {
	Limit sandbox.LimitName
	How   sandbox.Enforcement
}

func (l *Lacking) add(name sandbox.LimitName, how sandbox.Enforcement, why string) {
	l.Limits = append(l.Limits, Held{name, how})
	// What one is missing most are: that there is no control group, say, is said once.
	for i, said := range l.why {
		switch {
		case strings.Contains(why, said):
			return
		case strings.Contains(said, why):
			l.why[i] = why
			return
		}
	}
	l.why = append(l.why, why)
}

// String is a sentence for people.
func (l Lacking) String() string {
	var names []string
	for _, h := range l.Limits {
		names = append(names, fmt.Sprintf("%s is %s", h.Limit, h.How))
	}
	return "of the default limits " + strings.Join(names, ", ") + ": " + strings.Join(l.why, "; ")
}

// Clause is how a limit holds on a level with caps. What the pipeline itself holds
// is enforced everywhere; what a level says nothing about is off.
func Clause(caps sandbox.Capabilities, name sandbox.LimitName) sandbox.Clause {
	if name == sandbox.LimitWall || name == sandbox.LimitOutput {
		return sandbox.Clause{Enforcement: sandbox.Enforced}
	}
	if c, ok := caps.Limits[name]; ok && c.Enforcement != "" {
		return c
	}
	return sandbox.Clause{Enforcement: sandbox.Off}
}
