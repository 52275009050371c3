// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"embed"
	"encoding/json"
	"sync"
)

// builtin.json describes the tools that are built in: data, because people who
// write for models change it, and so that each schema is one text.
//
//go:embed builtin.json
var builtinFile embed.FS

// entry is a tool of builtin.json.
type entry struct {
	Name, Title, Description                     string
	Params, Output                               json.RawMessage
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

var builtins = sync.OnceValue(func() []*Tool {
	text, err := builtinFile.ReadFile("builtin.json")
	if err != nil {
		panic(err) // it is in the program
	}
	var entries []entry
	if err := json.Unmarshal(text, &entries); err != nil {
		panic(err)
	}
	var out []*Tool
	for _, e := range entries {
		out = append(out, lazy(Definition(e)))
	}
	return out
})

// Builtins are the tools that are built in. The caller does not change them.
func Builtins() []*Tool { return builtins() }

// Builtin finds one of them.
func Builtin(name string) (*Tool, bool) {
	for _, t := range builtins() {
		if t.Name == name {
			return t, true
		}
	}
	return nil, false
}
