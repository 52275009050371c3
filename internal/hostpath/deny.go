// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	maxGlob      = 1024 // bytes of one glob
	maxGlobStars = 4    // "**" in one glob: matching takes time with each
	maxGlobOrs   = 4    // "{" in one glob
)

// denyList is deny globs, ready to match paths relative to a workspace.
//
// A glob without a slash means any depth, as in .gitignore; one with a slash
// begins at the top. Upper and lower case are the same on purpose: what is
// denied on one host must not be readable as ".ENV" on another. Where there is
// doubt a path matches.
type denyList []struct{ glob, folded, said string }

// parseDeny checks and prepares globs.
func parseDeny(globs []string) (denyList, error) {
	var list denyList
	for _, said := range globs {
		bad := func(problem string) error {
			return &sandbox.Error{Op: "deny " + printable(said), Kind: sandbox.ErrInvalid, Problem: problem,
				Hint: "globs look like **/.env, secrets/** or *.pem"}
		}
		g := strings.TrimPrefix(said, "/")
		if !strings.Contains(strings.TrimSuffix(g, "/"), "/") {
			g = "**/" + g
		}
		g = strings.TrimSuffix(g, "/")
		switch {
		case strings.Trim(said, "/") == "":
			return nil, bad("the glob is empty")
		case len(said) > maxGlob || strings.Count(g, "**") > maxGlobStars || strings.Count(g, "{") > maxGlobOrs:
			return nil, bad(fmt.Sprintf("the glob is too long or has too many parts: at most %d bytes, %d **, and %d {", maxGlob, maxGlobStars, maxGlobOrs))
		case !utf8.ValidString(said) || strings.ContainsFunc(said, unicode.IsControl):
			return nil, bad("the glob holds a control character or is not UTF-8")
		case path.Clean("/"+g) != "/"+g:
			return nil, bad("the glob holds an empty part, . or .., and so matches nothing")
		case !doublestar.ValidatePattern(g):
			return nil, bad("the glob is malformed: a [, { or \\ is not closed")
		}
		list = append(list, struct{ glob, folded, said string }{g, fold(g), said})
	}
	return list, nil
}

// fold makes spellings equal that differ in case only; by way of upper case,
// because some letters have one upper but two lower forms.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

// match returns the glob that denies rel, or "".
func (l denyList) match(rel string) string {
	if len(l) == 0 {
		return ""
	}
	folded := fold(rel)
	for _, g := range l {
		// Folding can turn a range inside out; the glob as written counts too.
		if doublestar.MatchUnvalidated(g.folded, folded) || doublestar.MatchUnvalidated(g.glob, rel) {
			return g.said
		}
	}
	return ""
}
