// SPDX-License-Identifier: Apache-2.0

// Package drafts has the JSON Schema library compile its five drafts when a
// schema is first compiled, and not at the start of every program that links
// it: that was 3.5 ms and 430 page faults of each `caisson run`, which needs
// none.
//
// The library compiles them in its init, out of files that it embeds. This
// package is initialised before, as its path comes first and it imports next to
// nothing, and lays files in their place that say "false": no schema is a
// schema. That takes no time, and fails closed: until [Ready] has put the files
// back and had the init made again, the library takes no schema at all. Both
// are reached by name (go:linkname); where a newer library has no such names it
// does not link, and where they mean something else it takes no schema.
//
// So nobody imports the library but who calls Ready, and a test of this package
// must not lie in it: it would have the library initialised first.
//
// It stays by the rule of speed: each `caisson sandbox exec` is a start of the program,
// and the library's init takes 4.7 ms of it where this takes 0.2. There is no other way.
// The library's init (v6.0.3, the newest) has no option, looks at nothing but its own
// files, and writes what it compiled into fields that nobody else can set. The other
// library that is linked, google/jsonschema-go, reports one fault where an agent wants
// all and asserts no formats; a copy of this one would be ours to keep; and a process of
// its own for schemas would cost each tool's call more than this saves a run.
package drafts

import (
	"embed"
	"sync"
	_ "unsafe" // for go:linkname
)

//go:embed metaschemas
var none embed.FS

// files are the library's own.
//
//go:linkname files github.com/santhosh-tekuri/jsonschema/v6.metaFS
var files embed.FS

// compile is the library's init.
//
//go:linkname compile github.com/santhosh-tekuri/jsonschema/v6.init.0
func compile()

var kept embed.FS

func init() { kept, files = files, none }

// Ready returns when schemas can be compiled. Whoever uses the library calls it
// before, every time.
var Ready = sync.OnceFunc(func() {
	files = kept
	compile()
})
