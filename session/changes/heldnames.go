// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"regexp"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// heldPattern is a name of the table with a * in it.
type heldPattern struct{ before, after, why string }

// heldIndex is the table, to look names up in it.
type heldIndex struct {
	names    map[string]string        // why, by the name or by the last two parts of a path
	above    map[string]bool          // the first of two parts
	patterns map[string][]heldPattern // by their first letter, or by the last where they begin with *
}

var heldNames = sync.OnceValue(func() *heldIndex {
	x := &heldIndex{map[string]string{}, map[string]bool{}, map[string][]heldPattern{}}
	for _, g := range heldTable {
		for written := range strings.FieldsSeq(g.names) {
			for _, name := range expand(written) {
				x.add(name, g.why)
			}
		}
	}
	return x
})

func (x *heldIndex) add(name, why string) {
	if above, _, ok := strings.Cut(name, "/"); ok {
		x.above[above] = true
	}
	before, after, ok := strings.Cut(name, "*")
	if !ok {
		x.names[name] = why
		return
	}
	key := "*" + after[max(len(after)-1, 0):]
	if before != "" {
		key = before[:1]
	}
	x.patterns[key] = append(x.patterns[key], heldPattern{before, after, why})
}

// why looks up a folded name that is in the directory above.
func (x *heldIndex) why(above, name string) (why string, ok bool) {
	if name == "" {
		return "", false
	}
	if why, ok = x.names[name]; ok {
		return why, true
	}
	if why, ok = x.names[above+"/"+name]; ok {
		return why, true
	}
	for _, key := range []string{name[:1], "*" + name[len(name)-1:]} {
		for _, p := range x.patterns[key] {
			if len(name) >= len(p.before)+len(p.after) && strings.HasPrefix(name, p.before) && strings.HasSuffix(name, p.after) {
				return p.why, true
			}
		}
	}
	return "", false
}

// expand writes a name with {a,b} in it as several.
func expand(name string) []string {
	before, rest, ok := strings.Cut(name, "{")
	if !ok {
		return []string{name}
	}
	choices, after, _ := strings.Cut(rest, "}")
	var all []string
	for choice := range strings.SplitSeq(choices, ",") {
		all = append(all, expand(before+choice+after)...)
	}
	return all
}

// shortName is what FAT and NTFS call a file with a longer name: GIT~1, VSCODE~1.
var shortName = regexp.MustCompile(`^[^.]{1,6}~[0-9]{1,5}(\.[^.]{0,3})?$`)

// gitIn finds the first part of a path that a file system may take for .git.
func gitIn(at string) (string, bool) {
	if !strings.ContainsAny(at, "gG~") && isASCII(at) {
		return "", false
	}
	end := 0
	for name := range strings.SplitSeq(at, "/") {
		end += len(name)
		if hostpath.IsGit(name) {
			return at[:end], true
		}
		end++
	}
	return "", false
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// heldName says why a path is held back for its names. Each directory above it counts;
// dir says that it is one itself.
func heldName(at string, dir bool) (why []string) {
	if part, because, ok := hostpath.RunsByName(at); ok {
		why = append(why, Shown(part)+": "+because)
	}
	above := ""
	for rest, more := at, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		folded := hostpath.Folded(name)
		because, ok := heldNames().why(above, folded)
		switch {
		case ok && !((more || dir) && ordinaryDirs[folded]):
			why = append(why, Shown(name)+": "+because)
		case shortName.MatchString(name):
			why = append(why, Shown(name)+": some file systems take it for a longer name")
		}
		above = folded
	}
	if hasUnseen(at) {
		why = append(why, "its name has characters that are not seen")
	}
	return why
}

// isAbove says that things of certain names are held back in a directory of this name.
func isAbove(name string) bool {
	return heldNames().above[hostpath.Folded(name)] || hostpath.AboveProtected(name)
}
