// SPDX-License-Identifier: Apache-2.0

package changes

import "golang.org/x/sys/unix"

// recoverNames takes away the names that an Apply made which ended half way. What it had
// not put in place goes. A file of the host's that it had moved away goes where it is the
// one that the set replaces, and comes back otherwise. What cannot be told apart stays.
func recoverNames(h *host, set *Set, lines []journalLine) {
	last := map[string]journalLine{}
	for _, l := range lines {
		last[l.Temp] = l
	}
	for _, l := range last {
		p, err := placeIn(h, nil, l.Entry, &set.Entries[l.Entry])
		if err != nil {
			continue
		}
		p.recover(l)
		p.close()
	}
}

func (p *placing) recover(l journalLine) {
	now, _, err := p.now(l.Temp)
	switch {
	case err != nil || now == nil:
		return
	case l.Away && p.isKept(l.Temp):
		_ = unix.Unlinkat(p.fd(), l.Temp, 0)
		return
	case l.Away:
		_ = unix.Renameat2(p.fd(), l.Temp, p.fd(), p.name, unix.RENAME_NOREPLACE)
		return
	case l.New == 0 || now.Inode == l.New:
		p.drop(l.Temp) // it was not put in place, or it was and gave way again
		return
	case p.e.Base != nil && p.isKept(l.Temp) && removeAny(p.fd(), l.Temp) == nil:
		return
	}
	if in, _, err := p.now(p.name); err != nil || in != nil && in.Inode != l.New {
		return
	}
	if p.giveBack(l.Temp) == nil {
		p.drop(l.Temp)
	}
}

// abandon takes away what an Apply left in the workspace that ended half way, for a set
// that is about to go.
func (s *Store) abandon(id string) {
	set, err := s.read(id)
	if err != nil {
		return
	}
	head, lines, err := readJournal(s.path(id, journalFile), set)
	if err != nil || head == nil {
		return
	}
	root, err := openRoot(set, &ApplyOptions{})
	if err != nil {
		return
	}
	defer root.Close()
	recoverNames(&host{root: root}, set, lines)
}
