// SPDX-License-Identifier: Apache-2.0

package fstree

import (
	"slices"
)

// A directory is blocks, each of them entries followed by their names, both in
// the order of the names' bytes; "." and ".." are sorted in.

// entries are the names of a directory as they are written.
func entries(n *Node) []string {
	names := append(n.Names(), ".", "..")
	slices.Sort(names)
	return names
}

// split cuts names into those of one block each.
func split(names []string) [][]string {
	var out [][]string
	start, used := 0, 0
	for i, name := range names {
		need := direntSize + len(name)
		if used+need > Block {
			out = append(out, names[start:i])
			start, used = i, 0
		}
		used += need
	}
	return append(out, names[start:])
}

// directorySize is how long a directory is: every block but the last is full.
func directorySize(n *Node) int64 {
	parts := split(entries(n))
	last := 0
	for _, name := range parts[len(parts)-1] {
		last += direntSize + len(name)
	}
	return int64(len(parts)-1)*Block + int64(last)
}

// directory is what is in a directory.
func (p *plan) directory(i *inode) []byte {
	out := make([]byte, 0, i.size)
	parts := split(entries(i.Node))
	for n, names := range parts {
		start := len(out)
		nameAt := direntSize * len(names)
		for _, name := range names {
			to, kind := p.entry(i, name)
			out = le.AppendUint64(out, to.nid())
			out = le.AppendUint16(out, uint16(nameAt))
			out = append(out, kind, 0)
			nameAt += len(name)
		}
		for _, name := range names {
			out = append(out, name...)
		}
		if n < len(parts)-1 {
			out = append(out, make([]byte, start+Block-len(out))...)
		}
	}
	return out
}

// entry is what name means in the directory i.
func (p *plan) entry(i *inode, name string) (*inode, byte) {
	switch name {
	case ".":
		return i, entryDir
	case "..":
		return i.parent, entryDir
	}
	to := p.nodes[i.Children[name]]
	switch to.Kind {
	case Dir:
		return to, entryDir
	case Link:
		return to, entryLink
	}
	return to, entryFile
}
