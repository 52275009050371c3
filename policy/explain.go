// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Refused is the state of a clause that a level cannot enforce: a call under
// it does not run there. The other states are those of sandbox.Enforcement.
const Refused sandbox.Enforcement = "refused"

// Clause is one thing that a policy says, and how it holds.
type Clause struct {
	Name   string                    `json:"name"`  // "limits.memory", "files.mounts"
	Value  string                    `json:"value"` // for people
	From   string                    `json:"from"`  // file:line, "flag" or "default"
	Levels map[string]sandbox.Clause `json:"levels"`
}

// Explain says clause by clause what p has in force for the operator who asks
// for nothing, and how each holds on the levels given by name. A policy file
// that goes beyond the system's is one clause that is refused everywhere.
func Explain(p *Policy, levels map[string]sandbox.Capabilities) []Clause {
	v := p.Decide(&Call{Kind: RunCommand, Argv: []string{"true"}, Operator: true})
	if v.Decision == Deny {
		refused := sandbox.Clause{Enforcement: Refused, Detail: v.Hint}
		return []Clause{{Name: "policy", Value: v.Reason, From: v.Rule, Levels: every(levels, refused)}}
	}
	e := &explainer{plan: &v.Plan, levels: levels}
	if f := p.file; f != nil && f.Env.Any.V {
		e.add("env.any", "calls set any variable", f.rule(f.Env.Any.At), e.always)
	}
	e.tools(p)
	e.risk(p)
	return append(ExplainPlan(p, true, &v.Plan, levels), e.clauses...)
}

// ExplainPlan is Explain for the plan that p has of one call, flags included.
func ExplainPlan(p *Policy, operator bool, plan *Plan, levels map[string]sandbox.Capabilities) []Clause {
	e := &explainer{plan: plan, levels: levels}
	e.isolation(p.layers(operator))
	e.user()
	e.add("best_effort", fmt.Sprint(plan.BestEffort), e.from("best_effort"), e.always)
	e.network()
	e.commands()
	e.code()
	e.approvals()
	for _, l := range limits() {
		e.limit(l)
	}
	e.add("limits.on_output", onOutput(plan.Limits.OutputKill), e.from("limits.on_output"), e.always)
	for _, r := range plan.Watch {
		e.watch(r)
	}
	if c := plan.Cooling; c != nil {
		e.add("cooling", c.String(), e.from("cooling"), func(can sandbox.Capabilities) sandbox.Clause {
			switch {
			case c.Disk > 0 && can.Snapshot, c.Disk == 0 && can.Pause:
				return sandbox.Clause{Enforcement: sandbox.Enforced}
			case can.Pause && c.Freeze > 0:
				return sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "it stands still, and its memory stays where it is"}
			}
			return sandbox.Clause{Enforcement: sandbox.Off, Detail: "sandboxes stay warm"}
		})
	}
	e.files()
	e.changes()
	for _, name := range slices.Sorted(maps.Keys(plan.Env)) {
		if key := "env.pass." + name; plan.From["env.set."+name] == "" {
			e.add(key, "from the caller", e.from(key), e.always)
		} else {
			e.add("env.set."+name, "set", e.from("env.set."+name), e.always) // values may be secrets
		}
	}
	return e.clauses
}

type explainer struct {
	plan    *Plan
	levels  map[string]sandbox.Capabilities
	clauses []Clause
}

// every gives all levels the same answer.
func every(levels map[string]sandbox.Capabilities, c sandbox.Clause) map[string]sandbox.Clause {
	out := map[string]sandbox.Clause{}
	for name := range levels {
		out[name] = c
	}
	return out
}

func (e *explainer) from(clause string) string {
	if from := e.plan.From[clause]; from != "" {
		return from
	}
	return "default"
}

// add asks each level that can run how a clause holds there.
func (e *explainer) add(name, value, from string, ask func(sandbox.Capabilities) sandbox.Clause) {
	c := Clause{Name: name, Value: value, From: from, Levels: map[string]sandbox.Clause{}}
	for level, can := range e.levels {
		if can.Unusable != "" {
			c.Levels[level] = sandbox.Clause{Enforcement: Refused, Detail: can.Unusable, Remedy: can.Remedy}
		} else {
			c.Levels[level] = ask(can)
		}
	}
	e.clauses = append(e.clauses, c)
}

// always is the answer for what caisson itself does, the same on every level.
func (e *explainer) always(sandbox.Capabilities) sandbox.Clause {
	return sandbox.Clause{Enforcement: sandbox.Enforced}
}

func (e *explainer) can(ok bool, why string) sandbox.Clause {
	if ok {
		return sandbox.Clause{Enforcement: sandbox.Enforced}
	}
	return sandbox.Clause{Enforcement: Refused, Detail: why}
}

// isolation is the one clause that tells the levels apart. Where none is named, a call
// may name each that the layers take.
func (e *explainer) isolation(layers []*File) {
	from := e.from("isolation")
	e.add("isolation", e.plan.Isolation, from, e.always)
	c := &e.clauses[len(e.clauses)-1]
	for level := range c.Levels {
		if level == e.plan.Isolation || c.Levels[level].Enforcement == Refused {
			continue
		}
		c.Levels[level] = sandbox.Clause{Enforcement: Refused, Detail: "isolation is " + e.plan.Isolation}
		if from == "default" {
			c.Levels[level] = otherLevel(layers, level)
		}
	}
}

// otherLevel says whether a call may name a level that is not the default.
func otherLevel(layers []*File, level string) sandbox.Clause {
	for _, f := range layers {
		if r := f.boundIsolation(level); r != nil {
			return sandbox.Clause{Enforcement: Refused, Detail: r.reason, Remedy: r.hint}
		}
	}
	return sandbox.Clause{Enforcement: sandbox.Off, Detail: "a call has to ask for it, as with --isolation " + level}
}

func (e *explainer) limit(l limit) {
	value, explicit := l.get(&e.plan.Limits), e.plan.Limits.Explicit[l.name]
	e.add("limits."+string(l.name), l.show(value), e.from("limits."+string(l.name)), func(can sandbox.Capabilities) sandbox.Clause {
		c, known := can.Limits[l.name]
		switch {
		case value == 0:
			return sandbox.Clause{Enforcement: sandbox.Off, Detail: "no limit is asked for"}
		case !known || c.Enforcement == "":
			c = sandbox.Clause{Enforcement: sandbox.Off, Detail: "the level does not have it"}
		}
		// As the session does: a limit that is written down is not merely
		// emulated.
		if c.Enforcement != sandbox.Enforced && explicit && !e.plan.BestEffort {
			c.Enforcement = Refused
		}
		return c
	})
}

func (e *explainer) watch(r WatchRule) {
	value := r.When + ", " + r.Do
	if r.For > 0 {
		value = fmt.Sprintf("%s for %v, %s", r.When, r.For, r.Do)
	}
	e.add("watch", value, r.From, func(sandbox.Capabilities) sandbox.Clause {
		if r.Unmeasured() {
			return sandbox.Clause{Enforcement: Refused, Detail: NobodyMeasures}
		}
		if r.Metric == metricMemoryPercent && e.plan.Limits.Memory == 0 {
			return sandbox.Clause{Enforcement: sandbox.Off, Detail: "there is no limits.memory to be a part of"}
		}
		return sandbox.Clause{Enforcement: sandbox.Emulated, Detail: "sampled: what happens between two samples goes unseen"}
	})
}

func (e *explainer) files() {
	p := e.plan
	if p.Workspace != nil {
		e.mount("files.workspace", *p.Workspace)
	}
	for _, m := range p.Mounts {
		e.mount("files.mounts", m)
	}
	e.volumes()
	for _, t := range p.Toolchains {
		e.add("files.toolchains", t.Source, e.from("files.toolchains."+t.Source), e.always)
	}
	e.pathTools()
	if p.Image != nil {
		e.add("image", p.Image.Ref, e.from("image"), func(c sandbox.Capabilities) sandbox.Clause {
			return e.can(c.Images, "the level takes no container images")
		})
	}
	if p.Rootfs != nil {
		e.add("files.rootfs", p.Rootfs.Source, e.from("files.rootfs"), e.always)
	}
	for _, w := range p.Writable {
		e.add("files.writable", w, e.from("files.writable."+w), e.always)
	}
	for _, g := range p.Deny {
		e.add("files.deny", g, e.from("files.deny."+g), func(c sandbox.Capabilities) sandbox.Clause {
			return e.can(c.Masks, "the level cannot hide paths")
		})
	}
	for _, g := range p.MayCollect {
		e.add("files.collect", g+" may be taken out", e.from("files.collect."+g), e.always)
	}
	for _, c := range p.Collect {
		over := ""
		if p.CollectOverwrite {
			over = " and replaces what is there"
		}
		e.add("files.collect", c.Pattern+" is taken out"+over, "flag", e.always)
	}
}

func (e *explainer) mount(name string, m PlanMount) {
	value := m.Source + " " + accessName(m.Access)
	if m.Target != "" {
		value = strings.Join([]string{m.Source, "at", m.Target, accessName(m.Access)}, " ")
	}
	if m.GitWrite {
		value += ", git rw"
	}
	if m.Shared {
		value += ", shared"
	}
	e.add(name, value, m.From, func(c sandbox.Capabilities) sandbox.Clause {
		switch m.Access {
		case sandbox.CopyOnWrite:
			return e.can(c.CopyOnWrite, "the level has no copy-on-write")
		case sandbox.ReadWrite:
			return e.can(c.ReadWrite, "the level cannot write to the host")
		}
		return e.always(c)
	})
}

func onOutput(kill bool) string {
	if kill {
		return "kill"
	}
	return "truncate"
}
