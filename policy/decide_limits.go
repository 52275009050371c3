// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"

	"github.com/caisson-run/caisson/sandbox"
)

// limits settles every limit, on_output and the watch rules.
func (d *decision) limits() *refusal {
	want := &d.call.Limits
	for name, said := range want.Explicit {
		if said && name != limitOnOutput && !isLimit(name) {
			return cannotMean("", "limit %s is not known", quote(string(name)))
		}
	}
	d.plan.Limits.Explicit = map[sandbox.LimitName]bool{}
	for _, l := range limits() {
		d.settle(l)
		if !want.Explicit[l.name] {
			continue
		}
		if r := d.tighten(l, l.get(want)); r != nil {
			return r
		}
	}
	for _, f := range d.layers {
		d.plan.Watch = append(d.plan.Watch, f.Watch...)
	}
	return d.onOutput()
}

func isLimit(name sandbox.LimitName) bool {
	for _, l := range limits() {
		if l.name == name {
			return true
		}
	}
	return false
}

// settle is limit l before the call has spoken: the file's value, else the
// default, and never more than the system's.
func (d *decision) settle(l limit) {
	value, from, explicit := l.get(&d.defaults), "default", d.defaults.Explicit[l.name]
	if l.name == sandbox.LimitWall && d.endless(d.file) {
		value, from, explicit = 0, "terminal", false
		if d.file != nil && d.file.NoWall.Said() {
			from = d.file.rule(d.file.NoWall)
		}
	}
	if f := d.file; f != nil && f.Limits.Explicit[l.name] {
		value, from, explicit = l.get(&f.Limits), f.rule(f.limitsAt[l.name]), true
	}
	if f := d.system; f != nil && f.Limits.Explicit[l.name] && bound(l.get(&f.Limits)) < bound(value) {
		value, from, explicit = l.get(&f.Limits), f.rule(f.limitsAt[l.name]), true
	}
	d.put(l, value, from, explicit)
}

// endless says whether f, which may be nil, lets the call run for as long as it likes: it
// says so, or it says nothing and a person sits at the program. What a client or a model
// starts has an end.
func (d *decision) endless(f *File) bool {
	if !d.ownRun() {
		return false
	}
	if f != nil && (f.NoWall.Said() || f.Limits.Explicit[sandbox.LimitWall]) {
		return f.NoWall.Said()
	}
	return d.call.Terminal
}

// ownRun says whether the call is a run of the operator's, and of no tool.
func (d *decision) ownRun() bool {
	c := d.call
	return c.Operator && c.Tool == nil && (c.Kind == RunCommand || c.Kind == RunCode)
}

// boundLimit is [File.boundLimit] for this call.
func (d *decision) boundLimit(f *File, l limit, want float64) *refusal {
	if l.name == sandbox.LimitWall && d.endless(f) {
		return nil
	}
	return f.boundLimit(l, want, &d.defaults)
}

func (d *decision) put(l limit, value float64, from string, explicit bool) {
	l.set(&d.plan.Limits, value)
	d.plan.From["limits."+string(l.name)] = from
	if explicit {
		d.plan.Limits.Explicit[l.name] = true
	}
}

// tighten applies the call's own value. With Override the operator may go
// beyond the file, never beyond the system.
func (d *decision) tighten(l limit, want float64) *refusal {
	if math.IsNaN(want) || !l.within(want) {
		return cannotMean(fmt.Sprintf("it lies between %s and %s", l.format(l.min), l.format(l.max)),
			"limit %s cannot be %s", l.name, l.say(want))
	}
	for _, f := range d.layers {
		r := d.boundLimit(f, l, want)
		if r == nil {
			continue
		}
		if f == d.system || !d.call.Override {
			if f == d.file && d.call.Operator {
				r.hint += ", or run with --override"
			}
			return r
		}
		maximum, _ := f.limitBound(l, &d.defaults)
		d.plan.Overridden = append(d.plan.Overridden,
			fmt.Sprintf("limits.%s: %s instead of %s (%s)", l.name, l.show(want), l.show(maximum), r.rule))
	}
	d.put(l, want, "flag", true)
	return nil
}

// onOutput settles whether too much output kills. It is not put into
// Explicit, which drivers read as amounts to enforce.
func (d *decision) onOutput() *refusal {
	kill, from := d.defaults.OutputKill, "default"
	for _, f := range d.layers {
		if f.Limits.Explicit[limitOnOutput] {
			// That the file's is no looser than the system's, New has seen to.
			kill, from = f.Limits.OutputKill, f.rule(f.limitsAt[limitOnOutput])
		}
	}
	if want := d.call.Limits.OutputKill; d.call.Limits.Explicit[limitOnOutput] {
		for _, f := range d.layers {
			r := f.boundOnOutput(want, &d.defaults)
			if r != nil && (f == d.system || !d.call.Override) {
				return r
			}
			if r != nil {
				d.plan.Overridden = append(d.plan.Overridden, "limits.on_output: truncate instead of kill ("+r.rule+")")
			}
		}
		kill, from = want, "flag"
	}
	d.plan.Limits.OutputKill, d.plan.From["limits.on_output"] = kill, from
	return nil
}
