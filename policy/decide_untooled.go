// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/caisson-run/caisson/tool"
)

// untooled refuses programs that a key starts by itself, through an API that has no
// tools, where a layer lists tools: what that bounds (which, how often, with which
// arguments, whom to ask) would have a second frontend beside it. Such a program is what
// a tool that is built in would run; it may be started where that is listed with
// nothing more to say, or where commands lists what may be, which holds for every
// frontend. The operator of this host is no key.
func (d *decision) untooled() *refusal {
	c := d.call
	if c.Tool != nil || c.Operator || c.Kind != RunCommand && c.Kind != RunCode {
		return nil
	}
	return d.each(func(f *File) *refusal { return f.untooledProgram(string(c.Kind)) })
}

// untooledProgram says whether what the tool of that name would run may be started without it.
func (f *File) untooledProgram(name string) *refusal {
	if !f.Tools.At.Said() || f.Commands.Allow.Said() {
		return nil
	}
	_, builtIn := tool.Builtin(name)
	r := f.Tools.rule(name, builtIn)
	hint := "call a tool that is listed, or " + f.add(`commands: {allow: [...]}`) + `, with the programs that every frontend may start ("*" for all)`
	switch {
	case r == nil:
		return refuse(f.rule(f.Tools.At), hint, "programs are started by tools only, and tool %s is not listed", name)
	case !r.plain():
		return refuse(f.rule(r.At), hint, "tool %s is listed with more to say, which would not hold for a program that is started without it", name)
	}
	return nil
}

// plain says that the entry lets the tool be called, and bounds nothing.
func (r *ToolRule) plain() bool {
	return !r.Params.Said() && !r.Command.Said() && !r.HTTP.Said() && len(r.Rules) == 0 && len(r.Rates) == 0 && r.When == nil && len(r.Redact) == 0 &&
		r.Approve.V != "always"
}
