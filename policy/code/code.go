// SPDX-License-Identifier: Apache-2.0

// Package code says what the text of a program would import, call and loop over,
// and compares that with lists.
//
// JavaScript is read here ([JavaScript]). Python is read by Python's own parser,
// which is C, and TypeScript loses its types to that of Node.js: each by a script
// of this package that is run in a sandbox ([Python], [TypeScript]), and what
// comes out of there is read as if the program had written it. The sandbox is the
// caller's affair, since nothing here does I/O. Which text an interpreter is
// started with, [Find] says.
//
// This is advice, and not the wall. Names are followed through imports,
// assignments and strings that are put together from constants, and what leads
// around that (eval, getattr with a name that is computed, __subclasses__) is a
// fact of its own; but a program that wants to can always say a thing in a way
// that no reader of its text finds. What holds it is the sandbox.
package code

import (
	"fmt"
	"strings"
	"unicode"
)

// Bounds of one text, and of what is said of it.
const (
	MaxText  = 1 << 20 // bytes of source
	maxFacts = 4000
	maxName  = 256 // bytes of a name
	// MaxAnswer is how much a script of this package prints, in bytes, at most;
	// one that strips types prints its program, each byte of which may take six.
	MaxAnswer = 8 << 20
)

// Language is one that can be read.
type Language string

// The languages.
const (
	PythonLanguage     Language = "python"
	JavaScriptLanguage Language = "javascript"
	TypeScriptLanguage Language = "typescript"
)

// Fact is something that a text says, and where: lines count from 1, columns in
// bytes from 1.
type Fact struct {
	Name         string
	Line, Column int
	How          string // by what: "import", "__import__", "require"
}

// Facts are what a text says, each sort in its order. The same thing is there
// once.
type Facts struct {
	Imports []Fact // modules, with their whole names
	// Names are what is used of modules and of what the language has itself:
	// "os.system", "open". A name that begins with "?." is used of something that
	// is not known.
	Names   []Fact
	Code    []Fact // ways to run what is not in the text
	Unknown []Fact // imports of modules whose name is not in the text
	Loops   []Fact // without an end and without an exit
	More    bool   // there are more than are kept
	// Fault says why it cannot be read, and where; nil when it can.
	Fault *Fact
}

// fault is the Facts of what cannot be read.
func fault(line, column int, format string, args ...any) *Facts {
	return &Facts{Fault: &Fact{Name: printable(fmt.Sprintf(format, args...)), Line: max(line, 1), Column: max(column, 1)}}
}

// Unreadable is the Facts of a text that could not be read, for why.
func Unreadable(why string) *Facts { return fault(1, 1, "%s", why) }

// printable keeps a message to what a terminal can show, in bounds.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > maxName {
		s = strings.ToValidUTF8(s[:maxName-3], "") + "…"
	}
	return s
}
