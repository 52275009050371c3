// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"io"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	maxIgnoreFile  = 256 << 10 // bytes of a .gitignore that are read
	maxIgnoreRules = 5000      // of one
	maxIgnoreStars = 6         // "**" in a pattern: matching takes time with each
)

// ignores says what the .gitignore files of the host ignore. Those that the code wrote do
// not count: they would hide what it did.
type ignores struct {
	host *host
	dirs map[string][]ignoreRule // by the directory of a .gitignore
	seen map[string]bool         // whether a directory is ignored

	index     []string // what git tracks, sorted
	indexRead bool
}

// ignoreRule is one line of a .gitignore.
type ignoreRule struct {
	pattern  string // for a path relative to the directory, or for a name
	byName   bool
	dirsOnly bool
	negated  bool
}

func newIgnores(h *host) *ignores {
	return &ignores{host: h, dirs: map[string][]ignoreRule{}, seen: map[string]bool{}}
}

// match says whether a path is ignored, by itself or with a directory above it.
func (g *ignores) match(at string, dir bool) bool {
	if above := path.Dir(at); above != "." && g.matchDir(above) {
		return true
	}
	return g.decide(at, dir)
}

func (g *ignores) matchDir(at string) bool {
	ignored, ok := g.seen[at]
	if !ok {
		ignored = g.match(at, true)
		g.seen[at] = ignored
	}
	return ignored
}

// decide asks the rules of the nearest directory first; the last rule that matches counts.
func (g *ignores) decide(at string, dir bool) bool {
	for above := path.Dir(at); ; above = path.Dir(above) {
		rel := at
		if above != "." {
			rel = at[len(above)+1:]
		}
		rules := g.rules(above)
		for i := len(rules) - 1; i >= 0; i-- {
			if rules[i].match(rel, dir) {
				return !rules[i].negated
			}
		}
		if above == "." {
			return false
		}
	}
}

func (r *ignoreRule) match(rel string, dir bool) bool {
	if r.dirsOnly && !dir {
		return false
	}
	if r.byName {
		rel = path.Base(rel)
	}
	return doublestar.MatchUnvalidated(r.pattern, rel)
}

// rules are those of the .gitignore in a directory; none where there is no file.
func (g *ignores) rules(dir string) []ignoreRule {
	rules, ok := g.dirs[dir]
	if ok {
		return rules
	}
	if f, err := g.host.open(path.Join(dir, ".gitignore")); err == nil {
		text, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile+1))
		f.Close()
		if err == nil && len(text) <= maxIgnoreFile {
			rules = parseIgnores(text)
		}
	}
	g.dirs[dir] = rules
	return rules
}

// parseIgnores reads a .gitignore as gitignore(5) has it. A line that cannot be read
// ignores nothing.
func parseIgnores(text []byte) []ignoreRule {
	var rules []ignoreRule
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for raw := range bytes.SplitSeq(text, []byte("\n")) {
		if r, ok := parseIgnore(strings.TrimSuffix(string(raw), "\r")); ok && len(rules) < maxIgnoreRules {
			rules = append(rules, r)
		}
	}
	return rules
}

func parseIgnore(line string) (r ignoreRule, ok bool) {
	line = trimBlanks(line)
	if line == "" || line[0] == '#' {
		return r, false
	}
	if line[0] == '!' {
		r.negated, line = true, line[1:]
	}
	if strings.HasSuffix(line, "/") {
		r.dirsOnly, line = true, line[:len(line)-1]
	}
	r.byName = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	line = strings.NewReplacer("{", `\{`, "}", `\}`, `\{`, `\{`, `\}`, `\}`).Replace(line)
	if strings.HasSuffix(line, "/**") {
		line += "/*" // what is in it, not the directory itself
	}
	r.pattern = line
	return r, line != "" && strings.Count(line, "**") <= maxIgnoreStars && doublestar.ValidatePattern(line)
}

// trimBlanks takes away blanks at the end that no backslash keeps.
func trimBlanks(line string) string {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	return line
}
