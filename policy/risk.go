// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/policy/expr"
)

// Risk is the section risk: which calls are risky, whatever they are, and what
// becomes of those.
type Risk struct {
	At     Pos
	High   []Condition
	OnHigh Value[string] // ask, which is the default, or deny
}

const maxRisks = 200

// risk are the keys of risk.
func (d *decoder) risk() []field {
	r := &d.file.Risk
	return []field{
		{"high", func(n *yaml.Node) {
			d.list(n, "risk.high", func(n *yaml.Node) {
				if len(r.High) == maxRisks {
					d.fault(at(n), "", "risk.high has more than %d conditions", maxRisks)
					return
				}
				c := d.condition(n, "a condition")
				if c.Said() {
					var err error
					c.expr, err = expr.CompileEffect(c.V)
					d.conditionFaults(&c, err)
				}
				r.High = append(r.High, c)
			})
		}},
		{"on_high", func(n *yaml.Node) { r.OnHigh = d.text(n, "risk.on_high", oneOf("ask", "deny")) }},
	}
}

// risk asks about what is risky, or refuses it. A condition that fails counts as one
// that holds: what cannot be told is no small risk. It comes last, when it is known
// what the call would have.
func (d *decision) risk() *refusal {
	var call *expr.Prepared
	return d.each(func(f *File) *refusal {
		for i := range f.Risk.High {
			c := &f.Risk.High[i]
			if call == nil {
				call = d.effect()
			}
			holds, err := c.expr.Holds(call)
			if !holds && err == nil {
				continue
			}
			if f.Risk.OnHigh.V == "deny" {
				return refuse(f.rule(c.At), "leave it out; the policy calls it risky", "it is risky: %s", c.said())
			}
			d.ask(f, c.At, nil, "it is risky: %s", c.said())
		}
		return nil
	})
}

// effect is the call as conditions about risk see it.
func (d *decision) effect() *expr.Prepared {
	c := d.call
	in := expr.Input{Actor: c.Actor, Operator: c.Operator}
	if t := c.Tool; t != nil {
		in.Tool, in.Sandbox = t.Name, t.Sandbox
		in.Params, _ = (*expr.Params)(nil).Value(t.Args).(map[string]any)
	}
	if in.Params == nil || in.Params.(map[string]any) == nil {
		in.Params = map[string]any{}
	}
	n := d.plan.Network
	return expr.PrepareEffect(in, expr.Effect{
		Kind: string(c.Kind), Language: c.Language, Isolation: d.plan.Isolation, Argv: c.Argv,
		Network: n != nil && len(n.Allow) > 0, Root: d.plan.Root || c.Sudo, Terminal: c.Terminal,
	})
}

// sum is the section without places.
func (r *Risk) sum() any {
	if !r.At.Said() {
		return nil
	}
	out := struct {
		High   [][2]string
		OnHigh string
	}{OnHigh: r.OnHigh.V}
	for _, c := range r.High {
		out.High = append(out.High, [2]string{c.V, c.Message})
	}
	return out
}

// risk says what is risky.
func (e *explainer) risk(p *Policy) {
	for _, f := range []*File{p.system, p.file} {
		if f == nil {
			continue
		}
		for _, c := range f.Risk.High {
			e.add("risk.high", strings.Join([]string{c.said(), map[bool]string{true: "deny", false: "ask"}[f.Risk.OnHigh.V == "deny"]}, ": "), f.rule(c.At), e.always)
		}
	}
}
