// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Rules say what is applied without a person. Nothing that is held back is theirs to apply.
type Rules struct {
	Apply    []string // globs of what may be applied; none is nothing
	Hold     []string // globs of what is held back all the same
	MaxFiles int      // more are refused; 0 is no bound
}

// selection is what of a set is to be applied.
type selection struct {
	set    *Set
	chosen []bool // by the entry's index
	left   []Left
}

// choose reads what is asked for.
func choose(set *Set, o *ApplyOptions) (*selection, error) {
	s := &selection{set: set, chosen: make([]bool, len(set.Entries))}
	named, err := s.held(o.Held)
	if err != nil {
		return nil, err
	}
	hold, err := o.holds()
	if err != nil {
		return nil, err
	}
	why := func(i int) string {
		e := &set.Entries[i]
		switch {
		case hold(e.Path):
			return "a rule holds it back"
		case len(e.Held) > 0 && !named[i]:
			return strings.Join(e.Held, "; ")
		}
		return ""
	}
	wanted, err := s.wanted(o, why)
	if err != nil {
		return nil, err
	}
	for i := range set.Entries {
		if !wanted[i] && !named[i] {
			continue
		}
		if because := why(i); because != "" {
			s.left = append(s.left, Left{set.Entries[i].Path, because})
			continue
		}
		s.chosen[i] = true
	}
	s.dropEmpty()
	s.addAbove()
	return s, s.bounded(o)
}

// holds says what the rules hold back: a path, and each below a directory that they name.
func (o *ApplyOptions) holds() (func(at string) bool, error) {
	var patterns, folded []string
	for _, r := range o.Rules {
		for _, p := range r.Hold {
			patterns, folded = append(patterns, p), append(folded, strings.ToLower(p))
		}
	}
	hold, err := parseGlobs(patterns)
	if err != nil {
		return nil, err
	}
	holdFolded, err := parseGlobs(folded)
	plain, forgiving := matchesAbove(hold), matchesAbove(holdFolded)
	return func(at string) bool { return plain(at) || len(holdFolded) > 0 && forgiving(foldedPath(at)) }, err
}

// allows says what the rules let through: all of them have to.
func (o *ApplyOptions) allows() (func(at string) bool, error) {
	var all [][]policy.Glob
	for _, r := range o.Rules {
		globs, err := parseGlobs(r.Apply)
		if err != nil {
			return nil, err
		}
		all = append(all, globs)
	}
	return func(at string) bool {
		return !slices.ContainsFunc(all, func(globs []policy.Glob) bool { return !matches(globs, at) })
	}, nil
}

// held finds what is named although it is held back.
func (s *selection) held(names []string) (map[int]bool, error) {
	named := map[int]bool{}
	for _, name := range names {
		i, ok := s.find(name)
		if !ok {
			if at, git := gitIn(name); git {
				return nil, &sandbox.Error{Op: "apply " + Shown(name), Kind: sandbox.ErrDenied, Problem: "nothing below " + Shown(at) + " is ever applied", Hint: "commits come out as a branch", Rule: "built-in: .git"}
			}
			return nil, notInSet(name)
		}
		named[i] = true
	}
	return named, nil
}

// find finds the entry of a path.
func (s *selection) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.set.Entries, strings.TrimSuffix(name, "/"), func(e Entry, name string) int { return comparePaths(e.Path, name) })
}

// wanted finds what the paths and the rules name. why says what is held back.
func (s *selection) wanted(o *ApplyOptions, why func(int) string) ([]bool, error) {
	wanted := make([]bool, len(s.set.Entries))
	allowed, err := o.allows()
	if err != nil {
		return nil, err
	}
	may := func(i int) bool { return allowed(s.set.Entries[i].Path) }
	if len(o.Paths) == 0 {
		for i := range wanted {
			wanted[i] = may(i)
		}
		return wanted, nil
	}
	for _, name := range o.Paths {
		found, err := s.want(name, o.Exact, wanted, may, why)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, notInSet(name)
		}
	}
	return wanted, nil
}

// holdsOthers says that an entry is, or takes the place of, a directory.
func (e *Entry) holdsOthers() bool { return e.Type == Dir || e.Base != nil && e.Base.Type == Dir }

// want marks what one path or pattern names. The name of a file is no pattern, whatever
// is in it: code inside chooses it. With only it is an entry's name and nothing else.
func (s *selection) want(name string, only bool, wanted []bool, may func(int) bool, why func(int) string) (found bool, err error) {
	i, exact := s.find(name)
	if exact {
		op := "apply " + Shown(name)
		if !may(i) && s.set.Entries[i].Type != Dir {
			return false, &sandbox.Error{Op: op, Kind: sandbox.ErrDenied, Problem: "no rule applies it", Hint: "add it to changes.apply"}
		}
		if because := why(i); because != "" {
			return false, &sandbox.Error{Op: op, Kind: sandbox.ErrDenied, Problem: "it is held back: " + because, Hint: "look at it, then name it as one that was held back", Rule: "built-in: held back"}
		}
	}
	if exact && (only || !s.set.Entries[i].holdsOthers()) {
		wanted[i] = true
		return true, nil
	}
	if only {
		return false, nil
	}
	globs, err := parseGlobs([]string{name})
	if err != nil {
		globs = nil // a plain name may be no pattern
	}
	below := strings.TrimSuffix(name, "/") + "/"
	for i := range s.set.Entries {
		if at := s.set.Entries[i].Path; strings.HasPrefix(at+"/", below) || matches(globs, at) {
			found = true
			wanted[i] = wanted[i] || may(i)
		}
	}
	return found, nil
}

// dropEmpty leaves new directories of which nothing is chosen that the set has in them.
func (s *selection) dropEmpty() {
	for i := len(s.chosen) - 1; i >= 0; i-- {
		if e := &s.set.Entries[i]; !s.chosen[i] || e.Type != Dir || e.Op != Add {
			continue
		}
		has, below := false, s.set.Entries[i].Path+"/"
		j := i + 1
		for ; j < len(s.chosen) && strings.HasPrefix(s.set.Entries[j].Path, below) && !has; j++ {
			has = s.chosen[j]
		}
		s.chosen[i] = has || j == i+1
	}
}

// addAbove adds the new directories that chosen entries lie in. Each directory is looked
// up once, however many entries it has below.
func (s *selection) addAbove() {
	added := map[string]bool{}
	for i := len(s.chosen) - 1; i >= 0; i-- {
		if !s.chosen[i] || s.set.Entries[i].Op == Remove {
			continue
		}
		for at := path.Dir(s.set.Entries[i].Path); at != "." && !added[at]; at = path.Dir(at) {
			added[at] = true
			if j, ok := s.find(at); ok && s.set.Entries[j].Type == Dir && s.set.Entries[j].Op == Add {
				s.chosen[j] = true
			}
		}
	}
}

// bounded holds the rules' number of files.
func (s *selection) bounded(o *ApplyOptions) error {
	files := 0
	for i, chosen := range s.chosen {
		if chosen && s.set.Entries[i].Type != Dir {
			files++
		}
	}
	for _, r := range o.Rules {
		if r.MaxFiles > 0 && files > r.MaxFiles {
			return &sandbox.Error{Op: "apply change set " + s.set.ID, Kind: sandbox.ErrDenied, Problem: fmt.Sprintf("it would apply %d files, and the rules allow %d", files, r.MaxFiles), Hint: "look at the set, then apply it by hand", Rule: "changes.max_files"}
		}
	}
	return nil
}

// matches compares a path with patterns.
func matches(globs []policy.Glob, at string) bool {
	return slices.ContainsFunc(globs, func(g policy.Glob) bool { return g.Match("/", "/"+at) })
}

// matchesAbove compares a path, and each directory above it, which it does once for all
// paths that it is asked about.
func matchesAbove(globs []policy.Glob) func(at string) bool {
	known := map[string]bool{".": false}
	var match func(at string) bool
	match = func(at string) bool {
		if len(globs) == 0 {
			return false
		}
		m, ok := known[at]
		if !ok {
			m = match(path.Dir(at)) || matches(globs, at)
			known[at] = m
		}
		return m
	}
	return match
}

func parseGlobs(patterns []string) ([]policy.Glob, error) {
	var globs []policy.Glob
	for _, p := range patterns {
		g, err := policy.ParseGlob(p)
		if err != nil {
			return nil, err
		}
		globs = append(globs, g)
	}
	return globs, nil
}

// foldedPath is a path as the most forgiving file system compares it.
func foldedPath(at string) string {
	parts := strings.Split(at, "/")
	for i, part := range parts {
		parts[i] = hostpath.Folded(part)
	}
	return strings.Join(parts, "/")
}

func notInSet(name string) error {
	return &sandbox.Error{Op: "apply " + Shown(name), Kind: sandbox.ErrNotFound, Problem: "the set has no such path", Hint: "show the set"}
}
