// SPDX-License-Identifier: Apache-2.0

// Package drafts delays the JSON Schema library's own start-up work: the library
// compiles its five drafts in its init. Here they are compiled when a schema is first
// compiled.
//
// The library reads the drafts from files that it embeds. This package is initialised
// earlier: its import path sorts first, and it imports next to nothing. It replaces the
// files by ones that say "false", so that no schema is valid. That takes no time and fails
// closed: until [Ready] has restored the files and run the init again, the library accepts
// no schema. Both are reached with go:linkname. With a newer library that lacks the names
// the program does not link; where they mean something else, no schema is accepted.
//
// Only packages that call Ready import the library. A test of this package must be an
// external one, or the library is initialised first.
//
// It stays by the rule of speed. Each `caisson run` and `caisson sandbox exec` is a start
// of the program: without this package `caisson run --isolation process -- /bin/true` takes
// 39 ms and not 29. There is no other way. The library's init (v6.0.3, the newest) has no
// option, and it fills fields that no other package can set. The other library that is
// linked, google/jsonschema-go, reports one fault where an agent wants all and asserts no
// formats.
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

// Ready compiles the drafts, once, and returns when schemas can be compiled. It is called
// before each use of the library. It may be called from many goroutines.
var Ready = sync.OnceFunc(func() {
	files = kept
	compile()
})
