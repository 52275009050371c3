// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
)

// beyondHost refuses a limit that a call asks for and that is more than this host has: it
// is a slip of the pen, and would bound nothing. What a policy says may be meant for a
// larger host.
func (c *Call) beyondHost(name sandbox.LimitName) error {
	if !c.Limits.Explicit[name] {
		return nil
	}
	refuse := func(has string) error {
		return &sandbox.Error{Op: "limit " + string(name), Kind: sandbox.ErrInvalid, Problem: "it is more than this host has: " + has, Hint: "ask for that much at most, or leave it out"}
	}
	cpus, memory := hostHas()
	switch {
	case name == sandbox.LimitCPUs && cpus > 0 && c.Limits.CPUs > float64(cpus):
		return refuse(fmt.Sprintf("%d processors", cpus))
	case name == sandbox.LimitMemory && memory > 0 && c.Limits.Memory > memory:
		return refuse(Size(memory) + " of memory")
	}
	return nil
}
