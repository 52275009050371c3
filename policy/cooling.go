// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"go.yaml.in/yaml/v4"
)

// Cooling is the clause cooling: what becomes of a sandbox that goes on between calls, and
// that nothing uses.
type Cooling struct {
	At           Pos
	Off          bool
	Freeze, Disk time.Duration // 0 is a step that is left out
}

// PlanCooling says how a sandbox that nothing uses goes cold by itself. At least one step is
// there, and Disk is no sooner than Freeze.
type PlanCooling struct {
	// Freeze is how long until it stands still, with its memory where it is; 0 is never.
	Freeze time.Duration `json:"freeze,omitempty"`
	// Disk is how long until it is on the disk alone; 0 is never.
	Disk time.Duration `json:"disk,omitempty"`
}

// Cooling as the word on has it, and the shortest time of a step.
const (
	defaultFreeze = time.Minute
	defaultDisk   = 10 * time.Minute
	minCooling    = time.Second
)

const coolingOff = "off"

// cooling reads on, off, or the times of the steps.
func (d *decoder) cooling(n *yaml.Node) {
	c := &d.file.Cooling
	c.At = at(n)
	if n.Kind == yaml.ScalarNode {
		v := d.text(n, "cooling", oneOf("on", coolingOff))
		c.Off = v.V != "on"
		c.Freeze, c.Disk = defaultFreeze, defaultDisk
		return
	}
	before := len(d.faults)
	d.mapping(n, "cooling", d.coolingFields())
	switch {
	case len(d.faults) > before:
	case c.Freeze == 0 && c.Disk == 0:
		d.fault(c.At, "write cooling: off, or {freeze: 1m, disk: 10m}", "cooling has no step")
	case c.Disk > 0 && c.Freeze > c.Disk:
		d.fault(c.At, "let freeze be the shorter time, or off", "cooling: a sandbox is on the disk before it stands still")
	}
}

// coolingFields are the keys of cooling.
func (d *decoder) coolingFields() []field {
	c := &d.file.Cooling
	step := func(name string, to *time.Duration) field {
		return field{name, func(n *yaml.Node) {
			d.text(n, "cooling."+name, func(s string) (err error) {
				if s == coolingOff {
					return nil
				}
				if *to, err = ParseDuration(s); err == nil && *to < minCooling {
					err = invalid("write a time from 1s on, or off", "%s is too short", s)
				}
				return err
			})
		}}
	}
	return []field{step("freeze", &c.Freeze), step("disk", &c.Disk)}
}

// cooling settles how a sandbox goes cold: as the file says, or else the system's. Where
// either says off, it does not.
func (d *decision) cooling() {
	for _, f := range d.layers { // the system's first
		c := f.Cooling
		if !c.At.Said() {
			continue
		}
		d.from("cooling", f, c.At)
		if c.Off {
			d.plan.Cooling = nil
			return
		}
		d.plan.Cooling = &PlanCooling{c.Freeze, c.Disk}
	}
}

func (c *PlanCooling) String() string {
	if c == nil {
		return coolingOff
	}
	step := func(d time.Duration) string {
		if d == 0 {
			return coolingOff
		}
		return d.String()
	}
	return "freeze " + step(c.Freeze) + ", disk " + step(c.Disk)
}
