// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
)

// maxPath is the longest path that is looked at, in bytes: the kernel's.
const maxPath = 4096

// Options say how [Open] judges. The zero value is the strictest, but knows
// neither our state directory nor a home folder that the account database
// does not name.
type Options struct {
	// AllowDangerous lets through what is refused for its contents (~/.ssh,
	// /etc, a home folder). It is the operator's explicit word. It never helps
	// against kernel interfaces, control sockets, special files, our own state
	// and what lies above them.
	AllowDangerous bool

	// Write says that the sandbox may change the source: then what the host
	// itself runs later (/usr, ~/.bashrc) is refused too.
	Write bool

	// StateDir is our own state directory. Empty is none.
	StateDir string

	// Home is the operator's home folder, where the environment's HOME may be
	// another. Both count.
	Home string

	// Purpose is what the path is for, as errors say it: "mount", "workspace".
	Purpose string

	// For tests: the environment and the account database.
	getenv func(string) string
	passwd string
}

// op is "mount ./data".
func (o Options) op(path string) string {
	purpose := o.Purpose
	if purpose == "" {
		purpose = "open"
	}
	return purpose + " " + printable(path)
}

// printable keeps control characters of a path away from the terminal.
func printable(path string) string {
	path = sandbox.Clip(path, 200)
	if strings.ContainsFunc(path, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }) {
		return fmt.Sprintf("%q", path)
	}
	return path
}

// checkName refuses a spelling that no operator means.
func checkName(path string, o Options) error {
	bad := func(problem, hint string) error {
		return &sandbox.Error{Op: o.op(path), Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	switch {
	case path == "":
		return bad("the path is empty", "name a file or a directory")
	case strings.ContainsRune(path, 0):
		return bad("the path holds a NUL byte", "check where the path comes from")
	case len(path) > maxPath:
		return bad(fmt.Sprintf("the path is longer than %d bytes", maxPath), "name a directory above it instead")
	case !utf8.ValidString(path):
		return bad("the path is not UTF-8", "rename the file, or name the directory it is in")
	case strings.ContainsFunc(path, unicode.IsControl):
		return bad("the path holds a control character", "rename the file, or name the directory it is in")
	}
	return nil
}

// refuse is the error for a forbidden source.
func refuse(op, problem string, f forbidden) error {
	hint := "name only the files that are needed, or copy them elsewhere"
	if !f.never {
		hint += "; --allow-dangerous-mount lets it through"
	}
	return &sandbox.Error{Op: op, Kind: sandbox.ErrDenied, Problem: problem, Hint: hint, Rule: "built-in: " + f.rule}
}
