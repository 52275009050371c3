// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPath     = 4096 // PATH_MAX
	maxName     = 255  // NAME_MAX
	maxSegments = 128
)

// Glob is a pattern for slash-separated relative paths: path.Match's syntax
// within a segment, and ** for any number of whole segments, none included; at
// the end it stands for everything below. A star matches a leading dot too.
type Glob struct {
	pattern  string
	segments []string
}

// ParseGlob reads a pattern. It must be relative and without "." and "..".
func ParseGlob(pattern string) (Glob, error) {
	if err := CheckPath(pattern); err != nil {
		return Glob{}, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	g := Glob{pattern: pattern, segments: strings.Split(pattern, "/")}
	for _, s := range g.segments {
		if _, err := path.Match(s, ""); err != nil {
			return Glob{}, fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	if g.segments[len(g.segments)-1] == "**" {
		g.segments = append(g.segments, "*")
	}
	return g, nil
}

// String is the pattern.
func (g Glob) String() string { return g.pattern }

// Match says whether name matches.
func (g Glob) Match(name string) bool { return g.at(name)[len(g.segments)] }

// Below says whether something below the directory name may match; "" is the
// directory that patterns are relative to.
func (g Glob) Below(name string) bool {
	at := g.at(name)
	for _, here := range at[:len(g.segments)] {
		if here {
			return true
		}
	}
	return false
}

// at follows name through the pattern and says which positions it can be at
// behind it: an automaton, so that many stars cost no more than few.
func (g Glob) at(name string) []bool {
	at := make([]bool, len(g.segments)+1)
	at[0] = true
	g.skip(at)
	if name == "" {
		return at
	}
	for s := range strings.SplitSeq(name, "/") {
		next := make([]bool, len(at))
		for i, p := range g.segments {
			if !at[i] {
				continue
			}
			if p == "**" {
				next[i] = true
			} else if ok, _ := path.Match(p, s); ok {
				next[i+1] = true
			}
		}
		g.skip(next)
		at = next
	}
	return at
}

// skip lets every ** match nothing.
func (g Glob) skip(at []bool) {
	for i, p := range g.segments {
		if at[i] && p == "**" {
			at[i+1] = true
		}
	}
}

// CheckPath says what is wrong with a relative path that a guest sent, or that
// is meant for one: it must be the shortest form of itself, stay below where
// it starts, and hold nothing that a terminal or a log would act on.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("it is empty")
	case len(p) > maxPath:
		return fmt.Errorf("it is longer than %d bytes", maxPath)
	case !utf8.ValidString(p):
		return errors.New("it is not valid UTF-8")
	case strings.HasPrefix(p, "/"):
		return errors.New("it is absolute")
	case strings.Count(p, "/") >= maxSegments:
		return fmt.Errorf("it is deeper than %d directories", maxSegments)
	}
	for s := range strings.SplitSeq(p, "/") {
		switch {
		case s == "" || s == "." || s == "..":
			return fmt.Errorf("%q is no name in it", s)
		case len(s) > maxName:
			return fmt.Errorf("a name in it is longer than %d bytes", maxName)
		}
	}
	for _, r := range p {
		// Cf holds the marks that turn text around.
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return fmt.Errorf("it holds the control character %U", r)
		}
	}
	return nil
}
