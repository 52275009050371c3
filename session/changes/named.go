// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"path"
	"slices"
	"strings"
)

// Named are the paths of a workspace that the configurations of git on the host make it run
// or read, as the most forgiving file system compares them.
type Named []namedPath

// namedPath has an empty path for all of the workspace.
type namedPath struct{ path, setting string }

// newNamed takes paths with the settings that name them.
func newNamed(all map[string]string) (n Named) {
	for at, setting := range all {
		p := namedPath{setting: setting}
		if at != "." {
			p.path = foldedPath(at)
		}
		n = append(n, p)
	}
	slices.SortFunc(n, func(a, b namedPath) int { return strings.Compare(a.path+"\x00"+a.setting, b.path+"\x00"+b.setting) })
	return n
}

// Hold adds to what is held back of entries what is named, lies in what is named, or is on
// the way to it.
func (n Named) Hold(entries []Entry) {
	for i := range entries {
		e := &entries[i]
		at := foldedPath(e.Path)
		for _, p := range n {
			on := e.Type != Dir && strings.HasPrefix(p.path, at+"/")
			if p.path == "" || at == p.path || on || strings.HasPrefix(at, p.path+"/") {
				if why := "git runs or reads it: " + Shown(p.setting) + " names it"; !slices.Contains(e.Held, why) {
					e.Held = append(e.Held, why)
				}
				break
			}
		}
	}
}

// treesOf are the directories that entries lie in, and that may be working trees of git.
func treesOf(entries []Entry) []string {
	known, all := map[string]bool{".": true}, []string{"."}
	for i := range entries {
		for at := path.Dir(entries[i].Path); !known[at]; at = path.Dir(at) {
			known[at] = true
			all = append(all, at)
		}
	}
	return all
}
