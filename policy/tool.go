// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params"
)

// Tools are the tools that a caller may be offered, by name.
func (p *Policy) Tools() *tool.Registry {
	r, err := tool.NewRegistry(tool.Builtins()...)
	if err != nil {
		return &tool.Registry{}
	}
	return r
}

// tool judges the tool of the call, if there is one.
func (d *decision) tool() *refusal {
	c := d.call.Tool
	if c == nil {
		return nil
	}
	t, ok := d.Tools().Lookup(c.Name)
	if !ok {
		return refuse("built-in: listed tools", "see caisson tools ls", "there is no tool %s", quote(short(c.Name)))
	}
	if faults := t.Check(c.Args); len(faults) > 0 {
		return refuse("built-in: arguments of "+t.Name, "", "%s", faultText(faults))
	}
	return nil
}

// faultText is all faults as one sentence.
func faultText(faults []params.Fault) string {
	var all []string
	for _, f := range faults {
		if f.Path == "" {
			f.Path = "/"
		}
		all = append(all, f.Path+": "+f.Problem)
	}
	return fmt.Sprintf("the arguments do not fit: %s", strings.Join(all, "; "))
}
