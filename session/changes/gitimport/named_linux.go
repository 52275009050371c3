// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/session/changes"
)

// named are the paths of the working tree that the configs of the host make git run or
// read, as the most forgiving file system compares them.
type named []namedPath

type namedPath struct{ path, setting string }

// names finds them. A config that cannot be read refuses it all.
func (r *Repository) names() (all named, err error) {
	config, err := r.config()
	if err != nil {
		return nil, err
	}
	for at, setting := range hostpath.GitNames([]byte(config), r.name) {
		all = append(all, namedPath{folded(at), setting})
	}
	slices.SortFunc(all, func(a, b namedPath) int { return strings.Compare(a.path+"\x00"+a.setting, b.path+"\x00"+b.setting) })
	return all, nil
}

func folded(at string) string {
	parts := strings.Split(at, "/")
	for i := range parts {
		parts[i] = hostpath.Folded(parts[i])
	}
	return strings.Join(parts, "/")
}

// hold adds to what is held back of entries what is named, lies in what is named, or is
// on the way to it.
func (n named) hold(entries []changes.Entry) {
	for i := range entries {
		e := &entries[i]
		at := folded(e.Path)
		for _, p := range n {
			on := e.Type != changes.Dir && strings.HasPrefix(p.path, at+"/")
			if at == p.path || on || strings.HasPrefix(at, p.path+"/") {
				e.Held = append(e.Held, "git runs or reads it: "+changes.Shown(p.setting)+" names it")
				break
			}
		}
	}
}
