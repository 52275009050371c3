// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
)

// Glob is a pattern on paths inside a sandbox. Between slashes * stands for
// any run of characters, ? for one; a component ** stands for any number of
// components, none included; a backslash takes away the next character's
// meaning. A pattern that begins with / is meant from the root, any other from
// the working directory, and one that begins with **/ is met anywhere.
type Glob struct {
	text     string
	absolute bool
	parts    []string // components as written
}

// ParseGlob reads a pattern. Errors are ErrInvalid with a hint.
func ParseGlob(s string) (Glob, error) {
	g := Glob{text: s, absolute: strings.HasPrefix(s, "/")}
	if s == "" || s == "/" || len(s) > 4096 || strings.ContainsRune(s, 0) {
		return Glob{}, invalid("write a pattern such as out/*.png or **/.env", "%s is not a pattern", quote(s))
	}
	g.parts = strings.Split(strings.TrimPrefix(s, "/"), "/")
	if len(g.parts) > 64 {
		return Glob{}, invalid("use ** for many directories", "pattern %s has too many components", quote(s))
	}
	for _, p := range g.parts {
		switch {
		case p == "":
			return Glob{}, invalid("write "+quote(path.Clean(s)), "pattern %s has an empty component", quote(s))
		case p == "." || p == "..":
			return Glob{}, invalid("name the directory itself", "pattern %s has a component %s", quote(s), p)
		case p != "**" && strings.Contains(p, "**"):
			return Glob{}, invalid("write ** between slashes, or a single *", "pattern %s has ** inside a component", quote(s))
		}
		if err := checkComponent(s, p); err != nil {
			return Glob{}, err
		}
	}
	return g, nil
}

// checkComponent refuses what other tools' patterns have and this one not, so
// that no author relies on a rule that never matches.
func checkComponent(s, p string) error {
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			if i++; i == len(p) {
				return invalid(`write \\ for a backslash`, "pattern %s ends a component with a backslash", quote(s))
			}
		case '[', ']', '{', '}':
			return invalid(`write one pattern for each, or \`+p[i:i+1]+" for the character itself",
				"pattern %s has %q: sets and choices are not taken", quote(s), p[i:i+1])
		}
	}
	return nil
}

// String is the pattern as it was written.
func (g Glob) String() string { return g.text }

// Match says whether the absolute, clean path p matches, seen from the
// absolute, clean working directory dir.
func (g Glob) Match(dir, p string) bool {
	if g.parts == nil || !strings.HasPrefix(p, "/") {
		return false
	}
	if !g.absolute && g.parts[0] != "**" {
		if !sandbox.Within(p, dir) || p == dir {
			return false
		}
		p = strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
	}
	parts := strings.Split(strings.Trim(p, "/"), "/")
	for i, s := range parts {
		parts[i] = escape(s)
	}
	return coverParts(g.parts, parts)
}

var escaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`)

// escape writes a plain name as a pattern of itself.
func escape(name string) string { return escaper.Replace(name) }

// Covers says whether every path that matches h matches g too. It may say no
// where it is so, never yes where it is not.
func (g Glob) Covers(h Glob) bool {
	return g.parts != nil && h.parts != nil && g.absolute == h.absolute && coverParts(g.parts, h.parts)
}

// coverParts says whether the components want, themselves patterns, all fall
// under g: ** takes any number of them, also a **; another takes one.
//
// It is the usual greedy match with one point of return, the last **, and so
// takes at most len(g)*len(want) steps whatever the pattern.
func coverParts(g, want []string) bool {
	i, j, star, mark := 0, 0, -1, 0
	for j < len(want) {
		switch {
		case i < len(g) && g[i] == "**":
			star, mark = i, j
			i++
		case i < len(g) && want[j] != "**" && coverComponent(g[i], want[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(g) && g[i] == "**" {
		i++
	}
	return i == len(g)
}

// coverComponent is coverParts within a component.
func coverComponent(g, want string) bool {
	const special = `*?\`
	if !strings.ContainsAny(g, special) && !strings.ContainsAny(want, special) {
		return g == want
	}
	return coverPart(tokens(g), tokens(want))
}

// token is one character of a component, or a wildcard.
type token struct {
	char rune
	wild bool // char is '*' or '?' with its meaning
}

func tokens(part string) []token {
	var ts []token
	quoted := false
	for len(part) > 0 {
		r, n := utf8.DecodeRuneInString(part)
		if r == utf8.RuneError && n == 1 {
			r = utf8.MaxRune + 1 + rune(part[0]) // a byte that is no UTF-8 equals itself only
		}
		part = part[n:]
		switch {
		case quoted:
			ts, quoted = append(ts, token{char: r}), false
		case r == '\\':
			quoted = true
		default:
			ts = append(ts, token{char: r, wild: r == '*' || r == '?'})
		}
	}
	return ts
}

// coverPart is coverComponent of its tokens: * takes any run, also a *; ?
// takes one character or a ?; a plain character takes itself.
func coverPart(g, want []token) bool {
	anyRun := token{char: '*', wild: true}
	i, j, star, mark := 0, 0, -1, 0
	for j < len(want) {
		switch {
		case i < len(g) && g[i] == anyRun:
			star, mark = i, j
			i++
		case i < len(g) && want[j] != anyRun && (g[i] == want[j] || g[i] == token{char: '?', wild: true}):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(g) && g[i] == anyRun {
		i++
	}
	return i == len(g)
}

// floating returns the name N of a pattern **/N or **/N/**, which hides N
// wherever it is mounted; any other pattern depends on the place.
func (g Glob) floating() (name string, ok bool) {
	p := g.parts
	if len(p) == 3 && p[2] == "**" {
		p = p[:2]
	}
	if len(p) == 2 && !g.absolute && p[0] == "**" && p[1] != "**" {
		return p[1], true
	}
	return "", false
}
