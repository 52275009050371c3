// SPDX-License-Identifier: Apache-2.0

// Package fstree is the tree of files of a container image, in memory. It applies the
// image's layers to it ([Unpacker]), and writes and reads it as an EROFS image
// ([WriteEROFS]). The contents of files are elsewhere: a [Node] says where.
//
// Names come from images that may be hostile. Nothing here is a path of the host: a
// tree is walked node by node, links are followed inside of it only ([Node.Walk]),
// and the writer of a tree to disk makes one component at a time.
package fstree

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is what a node is. There are no devices, pipes and sockets: an image
// has no use for them in a sandbox.
type Kind uint8

// The kinds of node.
const (
	Dir Kind = iota
	File
	Link
)

// Node is one file, directory or symbolic link. A file that has several names
// (hard links) is one node that several directories hold.
type Node struct {
	Kind     Kind
	Mode     uint16 // permission bits and, for a directory, the sticky bit (0o1000); never set-id bits
	UID, GID uint32
	MTime    int64 // seconds since 1970
	Layer    int   // the layer that it came with last; what a whiteout may remove

	Size   int64  // of a file, in bytes
	Offset int64  // of a file's contents where they are kept; a multiple of Block
	Target string // of a link

	Children map[string]*Node // of a directory
}

// Block is the block size of an image, and what file contents are aligned to: a page, so
// that they can be mapped.
const Block = 4096

// Bounds of what a tree may hold; the kernel has the same ones.
const (
	MaxName   = 255
	MaxTarget = 4095
	MaxDepth  = 256 // directories above a file; the kernel has no such bound
	maxHops   = 40  // links that one walk follows (MAXSYMLINKS of Linux)
)

// ErrNotFound is the end of a walk that leads nowhere.
var ErrNotFound = errors.New("there is no such file")

// NewDir makes an empty directory, mode 0755, of root.
func NewDir() *Node { return &Node{Kind: Dir, Mode: 0o755, Children: map[string]*Node{}} }

// CheckName refuses what cannot be one component of a path.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q is no name of a file", name)
	case len(name) > MaxName:
		return fmt.Errorf("the name %.20q… is longer than %d bytes", name, MaxName)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("the name %q holds a slash or a NUL byte", name)
	}
	return nil
}

// Names are a directory's, sorted by their bytes.
func (n *Node) Names() []string { return slices.Sorted(maps.Keys(n.Children)) }

// Lookup walks p without following any link: p is relative to n, clean, and
// separated by slashes.
func (n *Node) Lookup(p string) (*Node, error) {
	for part := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if part == "" {
			continue
		}
		if n.Kind != Dir {
			return nil, fmt.Errorf("%s: a file or symbolic link is on the way", p)
		}
		next := n.Children[part]
		if next == nil {
			return nil, ErrNotFound
		}
		n = next
	}
	return n, nil
}

// Walk finds the directory that parts lead to from the root n, following
// links as a process would whose root is n: an absolute target and ".." at the
// top stay inside. Where something is missing, make gives it when it is not
// nil, else the walk ends with ErrNotFound.
func (n *Node) Walk(parts []string, make func(parent *Node, name string) (*Node, error)) (*Node, error) {
	stack := []*Node{n} // from the root to where the walk is
	todo := slices.Clone(parts)
	for hops := 0; len(todo) > 0; {
		part, at := todo[0], stack[len(stack)-1]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			stack = stack[:max(len(stack)-1, 1)]
			continue
		}
		next := at.Children[part]
		if next == nil {
			if make == nil {
				return nil, ErrNotFound
			}
			var err error
			if next, err = make(at, part); err != nil {
				return nil, err
			}
		}
		switch next.Kind {
		case Dir:
			if len(stack) > MaxDepth {
				return nil, fmt.Errorf("it lies more than %d directories deep", MaxDepth)
			}
			stack = append(stack, next)
		case Link:
			if hops++; hops > maxHops {
				return nil, fmt.Errorf("%s: too many symbolic links on the way", strings.Join(parts, "/"))
			}
			if strings.HasPrefix(next.Target, "/") {
				stack = stack[:1]
			}
			todo = append(strings.Split(next.Target, "/"), todo...)
		case File:
			return nil, fmt.Errorf("%s: a file is on the way", strings.Join(parts, "/"))
		}
	}
	return stack[len(stack)-1], nil
}

// Count is the number of names below n, and the bytes of all files, each once.
func (n *Node) Count() (names int, bytes int64) {
	seen := map[*Node]bool{}
	var walk func(*Node)
	walk = func(d *Node) {
		for _, c := range d.Children {
			names++
			if c.Kind == Dir {
				walk(c)
			} else if !seen[c] {
				seen[c] = true
				bytes += c.Size
			}
		}
	}
	walk(n)
	return names, bytes
}
