// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"path"
)

// plan says of each chosen entry whether it is to be applied, is so already, or is in
// conflict.
type plan struct {
	sel       *selection
	host      *host
	ready     []bool // by the entry's index
	already   []bool
	conflicts []string // why; empty is none
}

func makePlan(ctx context.Context, sel *selection, h *host) (*plan, error) {
	n := len(sel.set.Entries)
	p := &plan{sel: sel, host: h, ready: make([]bool, n), already: make([]bool, n), conflicts: make([]string, n)}
	for i := range sel.set.Entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !sel.chosen[i] {
			continue
		}
		done, why := p.check(&sel.set.Entries[i])
		p.already[i], p.conflicts[i], p.ready[i] = done, why, !done && why == ""
	}
	// From the last on: what a directory holds comes before the directory.
	for i := n - 1; i >= 0; i-- {
		if e := &sel.set.Entries[i]; p.ready[i] && e.Op == Change && e.Base.Type == Dir {
			if why := p.emptied(e.Path); why != "" {
				p.ready[i], p.conflicts[i] = false, why
			}
		}
	}
	return p, nil
}

// check compares one entry with the host as it is now. Entries above it were checked.
func (p *plan) check(e *Entry) (done bool, why string) {
	if why := p.above(e); why != "" {
		return false, why
	}
	now, err := p.host.look(e.Path)
	switch {
	case elsewhere(err):
		return false, "it is on another file system"
	case err != nil:
		return false, "it cannot be looked at"
	case e.Op == Remove && now == nil:
		return true, ""
	case e.Op != Remove && now != nil && p.reached(e, now):
		return true, ""
	case e.Base == nil && now != nil:
		return false, "there was nothing when the run was kept, and now there is something"
	case e.Base == nil:
		return false, ""
	case now == nil:
		return false, "it was removed on the host"
	case e.Base.Touched:
		return false, "it was changed on the host while the run was on"
	}
	return false, changed(e.Base, now)
}

// changed says how a file of the host differs from what it was.
func changed(was, now *Base) string {
	switch {
	case was.Type != now.Type:
		return "it has another type on the host"
	case was.Type == "":
		return "it is no file, directory or link on the host"
	case was.Inode != now.Inode:
		return "it was replaced on the host"
	case was.Type == Dir:
		return ""
	case was.Size != now.Size || !was.Ctime.Equal(now.Ctime):
		return "it was changed on the host"
	}
	return ""
}

// reached says that the host has what an entry makes.
func (p *plan) reached(e *Entry, now *Base) bool {
	switch {
	case now.Type != e.Type:
		return false
	case e.Type == Dir:
		return e.Op != Mode || now.Mode == e.Mode&0o777
	case e.Type == Link:
		to, err := p.host.readlink(e.Path)
		return err == nil && to == e.Link
	case e.Exec() != (now.Mode&0o111 != 0) || now.Size != e.Size:
		return false
	}
	sha, err := hashFile(p.host, e.Path)
	return err == nil && sha == e.SHA256
}

// above says what is wrong with the directory that an entry lies in.
func (p *plan) above(e *Entry) string {
	dir := path.Dir(e.Path)
	if dir == "." {
		return ""
	}
	if i, ok := p.sel.find(dir); ok && p.sel.set.Entries[i].Type == Dir && p.sel.chosen[i] {
		switch above := &p.sel.set.Entries[i]; {
		case p.conflicts[i] != "" && above.Op != Remove:
			return "its directory is in conflict"
		case above.Op == Add, above.Op == Change:
			return "" // it is there by then
		}
	}
	if e.Op == Remove {
		return "" // where the directory is gone it is, too
	}
	switch now, err := p.host.look(dir); {
	case err != nil:
		return "its directory cannot be reached"
	case now == nil:
		return "its directory is gone, not applied, or behind a link"
	case now.Type != Dir:
		return "its directory is none on the host"
	}
	return ""
}

// emptied says what would be left of a directory that something else takes the place of.
func (p *plan) emptied(dir string) string {
	names, err := p.host.list(dir)
	if err != nil {
		return "the directory there cannot be looked at"
	}
	for _, name := range names {
		i, ok := p.sel.find(path.Join(dir, name))
		if !ok || !p.ready[i] || p.sel.set.Entries[i].Op != Remove {
			return "the directory there has files that are not removed: " + Shown(name)
		}
		if p.sel.set.Entries[i].Type == Dir {
			if why := p.emptied(path.Join(dir, name)); why != "" {
				return why
			}
		}
	}
	return ""
}
