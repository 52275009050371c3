// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/sandbox"
)

// Changes is the section changes: what becomes of what code changed in a copy-on-write
// workspace.
type Changes struct {
	At       Pos
	Keep     Value[string]          // KeepNone, KeepWorkspace or, where a call says it, ""
	Apply    Value[[]Value[string]] // Globs of what is applied without a person
	Hold     []Value[string]        // Globs of what is held back all the same
	MaxFiles Value[int]             // more are not applied without a person; 0 is no bound
}

// Words of changes.keep.
const (
	KeepNone      = "none"
	KeepWorkspace = "workspace"
)

// ChangesWish is what a call wants of the changes in its workspace.
type ChangesWish struct {
	// Keep keeps them, where the policy does not say none. Required refuses the call
	// otherwise. Discard keeps nothing, whatever the policy says.
	Keep, Required, Discard bool
	// Ignored keeps also what .gitignore files ignore.
	Ignored bool
	// From is the change set that the workspace begins with; empty is none.
	From string
}

// PlanChanges says what is kept of the changes in a copy-on-write workspace.
type PlanChanges struct {
	// Discard keeps nothing: there is a set to begin with alone.
	Discard bool   `json:"discard,omitempty"`
	Ignored bool   `json:"ignored,omitempty"`
	From    string `json:"from,omitempty"` // the change set that it begins with
	// Rules are those of each layer that says what is applied without a person; a path has
	// to be let through by all of them. Empty: nothing is.
	Rules []ChangeRules `json:"rules,omitempty"`
	// Hold are Globs of what any layer holds back, also where a person is asked for a tool.
	Hold []string `json:"hold,omitempty"`
}

// ChangeRules say what is applied without a person.
type ChangeRules struct {
	Apply    []string `json:"apply,omitempty"` // Globs
	Hold     []string `json:"hold,omitempty"`  // Globs
	MaxFiles int      `json:"max_files,omitempty"`
}

// changes are the keys of changes.
func (d *decoder) changes() []field {
	c := &d.file.Changes
	return []field{
		{"keep", func(n *yaml.Node) { c.Keep = d.text(n, "changes.keep", oneOf(KeepNone, KeepWorkspace)) }},
		{"apply", func(n *yaml.Node) {
			c.Apply = Value[[]Value[string]]{d.texts(n, "changes.apply", checkBelow), at(n)}
		}},
		{"hold", func(n *yaml.Node) { c.Hold = d.texts(n, "changes.hold", checkBelow) }},
		{"max_files", func(n *yaml.Node) {
			p := d.value(n, "changes.max_files", scalarInt, func(s string) error {
				v, err := strconv.Atoi(s)
				if err != nil || v < 1 || v > 1_000_000 {
					return invalid("write a number from 1 to 1000000", "%s files cannot be meant", quote(s))
				}
				c.MaxFiles.V = v
				return nil
			})
			c.MaxFiles.At = p
		}},
	}
}

// checkBelow takes a pattern of paths in a workspace.
func checkBelow(s string) error {
	if strings.HasPrefix(s, "/") {
		return invalid("write it from the workspace: "+quote(strings.TrimLeft(s, "/")), "pattern %s begins with a slash", quote(s))
	}
	return checkGlob(s)
}

// rules are what the file says of applying; ok is false where it says nothing.
func (c *Changes) rules() (r ChangeRules, ok bool) {
	for _, v := range c.Apply.V {
		r.Apply = append(r.Apply, v.V)
	}
	for _, v := range c.Hold {
		r.Hold = append(r.Hold, v.V)
	}
	r.MaxFiles = c.MaxFiles.V
	return r, c.Apply.Said()
}

// changes decides what is kept of what code changes in the workspace.
func (d *decision) changes() *refusal {
	w := d.call.Changes
	if w.From != "" && !d.cow() {
		return cannotMean("name the workspace that it is of: --workspace DIR", "change set %s needs a copy-on-write workspace to begin in", quote(w.From))
	}
	keep, from := w.Keep && d.cow(), "flag"
	if w.Required && !d.cow() {
		return cannotMean("name a workspace: --workspace DIR", "changes are kept of a copy-on-write workspace, and there is none")
	}
	plan := &PlanChanges{Ignored: w.Ignored, From: w.From}
	for _, f := range d.layers {
		switch f.Changes.Keep.V {
		case KeepNone:
			if w.Required {
				return refuse(f.rule(f.Changes.Keep.At), "leave it out, or change the line to keep: workspace", "no changes are kept (changes.keep: none)")
			}
			keep = false
		case KeepWorkspace:
			if f == d.file && d.cow() && !w.Discard {
				keep, from = true, f.rule(f.Changes.Keep.At)
			}
		}
		r, ok := f.Changes.rules()
		if ok {
			plan.Rules = append(plan.Rules, r)
		}
		plan.Hold = append(plan.Hold, r.Hold...)
	}
	for _, f := range d.layers {
		keep = keep && f.Changes.Keep.V != KeepNone
	}
	if !keep && w.From == "" {
		return nil
	}
	plan.Discard = !keep
	d.plan.Changes, d.plan.From["changes.keep"] = plan, from
	return nil
}

// RuleApply is the rule by which a person says yes to what is applied to the host.
const RuleApply = "built-in: a person applies changes"

// applied has a person asked about what a tool applies to the host, where no layer does.
func (d *decision) applied() *refusal {
	if t := d.call.Tool; t != nil && t.Server == "" && t.Name == "apply_changes" && !t.Ruled && len(d.askings) == 0 {
		d.askings = append(d.askings, Asking{Rule: RuleApply, What: "it changes files of the host"})
	}
	return nil
}

// cow says that there is a workspace in which writes stay inside.
func (d *decision) cow() bool {
	return d.plan.Workspace != nil && d.plan.Workspace.Access == sandbox.CopyOnWrite
}

// changes says what becomes of changes in the workspace.
func (e *explainer) changes() {
	c := e.plan.Changes
	if c == nil {
		return
	}
	value := "kept as a change set"
	switch {
	case c.Discard:
		value = "not kept"
	case c.Ignored:
		value += ", with what .gitignore ignores"
	}
	if c.From != "" {
		value += "; begins with " + c.From
	}
	e.add("changes.keep", value, e.from("changes.keep"), func(can sandbox.Capabilities) sandbox.Clause {
		return e.can(can.Changes || c.Discard, "the level does not tell what was changed")
	})
	for _, r := range c.Rules {
		e.add("changes.apply", strings.Join(r.Apply, ", ")+" without a person", e.from("changes.apply"), e.always)
	}
}
