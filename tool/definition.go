// SPDX-License-Identifier: Apache-2.0

// Package tool says which tools there are: what each is called, what it takes
// and gives, and what it does to the world. Agents choose by it, frontends show it,
// and the policy checks arguments against it.
//
// It also reads calls of tools as the APIs of models write them ([ReadCall]), and writes
// what came of them as those APIs take it back ([Answer]).
//
// A tool is described here and carried out by package session, so that nothing
// runs by another way. Nothing here does I/O.
package tool

import (
	"encoding/json"
	"regexp"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// Definition is a tool as an agent sees it. Name, Description and Params mean to
// models what they say; the rest is for programs around them.
type Definition struct {
	// Name has letters, digits, _ and -, 64 at most: what every model's API takes.
	Name        string
	Title       string // for people
	Description string // for the model: what it does, when to use it
	// Params is the JSON Schema (draft 2020-12) of the arguments, an object; Output
	// that of the answer, and empty where there is none.
	Params, Output json.RawMessage

	// ReadOnly tools change nothing; Destructive ones may change or remove what is
	// there; calling an Idempotent one again changes nothing more; OpenWorld ones
	// reach beyond the sandbox. They are hints: the policy does not go by them.
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

// Tool is a definition that was found well-formed, ready for checks. It does not
// change and may be used from many goroutines.
type Tool struct {
	Definition
	// Command is what a declared command runs, HTTP what a declared request asks; nil
	// for every other tool.
	Command *Command
	HTTP    *HTTP

	params func() (*params.Schema, error)
}

// New reads the definition of a tool that is not built in. Errors are ErrInvalid.
func New(d Definition) (*Tool, error) {
	t := lazy(d)
	if !validName(d.Name) {
		return nil, &sandbox.Error{Op: "tool " + sandbox.Clip(d.Name, 64), Kind: sandbox.ErrInvalid, Problem: "it is not a tool's name",
			Hint: "use letters, digits, _ and -, 64 at most"}
	}
	_, err := t.params()
	return t, err
}

// lazy compiles the schema when it is first needed: most runs call no tool.
func lazy(d Definition) *Tool {
	return &Tool{Definition: d, params: sync.OnceValues(func() (*params.Schema, error) { return params.Compile(d.Params) })}
}

// Check compares arguments, as [params.Read] gives them, with the tool's schema.
func (t *Tool) Check(args any) []params.Fault {
	s, err := t.params()
	if err != nil { // New found it well-formed, and a test does so for those built in
		return []params.Fault{{Problem: err.Error()}}
	}
	return s.Check(args)
}

var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) })

func validName(s string) bool { return namePattern().MatchString(s) }

// CheckName refuses what cannot be a tool's name. Errors are ErrInvalid.
func CheckName(s string) error {
	if validName(s) {
		return nil
	}
	return &sandbox.Error{Op: "tool", Kind: sandbox.ErrInvalid, Problem: "its name is not one that models can call", Hint: "use letters, digits, _ and -, 64 at most"}
}
