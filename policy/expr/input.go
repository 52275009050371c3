// SPDX-License-Identifier: Apache-2.0

package expr

import "errors"

// Input is the call that a condition is about.
type Input struct {
	Tool string
	// Params are the arguments as [Params.Value] gives them.
	Params any
	// Actor is who asks; Operator says that it is the owner of the host. Sandbox is
	// the living sandbox that it is about.
	Actor, Sandbox string
	Operator       bool
}

// Prepared is a call, ready for conditions. It is for one goroutine.
type Prepared struct{ vars map[string]any }

// Prepare makes a call ready.
func Prepare(in Input) *Prepared {
	return &Prepared{map[string]any{
		"params": in.Params,
		"tool":   map[string]any{"name": in.Tool},
		"call":   map[string]any{"actor": in.Actor, "sandbox": in.Sandbox, "operator": in.Operator},
	}}
}

// Effect is what a call would do.
type Effect struct {
	Kind, Language, Isolation string
	Argv                      []string
	Network, Root, Terminal   bool
}

// PrepareEffect makes a call ready for conditions about what it would do.
func PrepareEffect(in Input, e Effect) *Prepared {
	p := Prepare(in)
	if p.vars["params"] == nil {
		p.vars["params"] = map[string]any{}
	}
	call := p.vars["call"].(map[string]any)
	call["kind"], call["language"], call["isolation"], call["argv"] = e.Kind, e.Language, e.Isolation, append([]string{}, e.Argv...)
	call["network"], call["root"], call["terminal"] = e.Network, e.Root, e.Terminal
	return p
}

// ErrMissing is why a condition fails that asks for an argument that is not there.
var ErrMissing = errors.New("is not given (a condition that works without begins with has(…))")
