// SPDX-License-Identifier: Apache-2.0

package fstree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of what is read.
const (
	maxNodes     = 4 << 20
	maxDirectory = 256 << 20
	maxDepth     = 2048
)

// ReadEROFS gives the tree of an image that WriteEROFS made. size is the file's. An
// image that was damaged gives an error or another tree, never anything that
// is out of bounds.
func ReadEROFS(r io.ReaderAt, size int64) (*Node, error) {
	rd, top, err := newReader(r, size)
	if err != nil {
		return nil, err
	}
	// All of it is needed, and one read is faster than one for each file.
	all := make([]byte, size-rd.meta)
	if _, err := r.ReadAt(all, rd.meta); err != nil {
		return nil, damaged("%v", err)
	}
	rd.all = all
	root, err := rd.node(top, 0)
	if err != nil {
		return nil, err
	}
	if root.Kind != Dir {
		return nil, damaged("its root is no directory")
	}
	return root, nil
}

// FindEROFS looks for one path in an image, as [Node.Lookup] does, without
// reading more than the directories that lead there. The node has no children.
func FindEROFS(r io.ReaderAt, size int64, p string) (*Node, error) {
	rd, at, err := newReader(r, size)
	if err != nil {
		return nil, err
	}
	rd.only = true
	n, err := rd.node(at, 0)
	for part := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if err != nil || part == "" {
			break
		}
		if n.Kind != Dir {
			return nil, fmt.Errorf("%s: a file or symbolic link is on the way", p)
		}
		rd.want, rd.found, rd.seen = part, 0, map[uint64]*Node{}
		if _, err = rd.node(at, 0); err != nil {
			break
		}
		if at = rd.found; at == 0 {
			return nil, ErrNotFound
		}
		rd.want = ""
		n, err = rd.node(at, 0)
	}
	return n, err
}

// newReader reads the superblock and gives the number of the root.
func newReader(r io.ReaderAt, size int64) (*reader, uint64, error) {
	rd := &reader{r: r, size: size, seen: map[uint64]*Node{}}
	super := make([]byte, superSize)
	if _, err := r.ReadAt(super, superOffset); err != nil {
		return nil, 0, damaged("the superblock cannot be read: %v", err)
	}
	if le.Uint32(super) != magic || super[12] != blockBits || le.Uint32(super[80:]) != 0 {
		return nil, 0, damaged("it is not of this package's making")
	}
	rd.meta = int64(le.Uint32(super[40:])) * Block
	if rd.meta < DataStart || rd.meta >= size {
		return nil, 0, damaged("its metadata is not in it")
	}
	return rd, uint64(le.Uint16(super[14:])), nil
}

// EROFSDataEnd is where the metadata of an image begins.
func EROFSDataEnd(r io.ReaderAt) (int64, error) {
	super := make([]byte, superSize)
	if _, err := r.ReadAt(super, superOffset); err != nil {
		return 0, damaged("the superblock cannot be read: %v", err)
	}
	return int64(le.Uint32(super[40:])) * Block, nil
}

// ErrDamaged is the error of an image that was not written whole.
var ErrDamaged = errors.New("damaged EROFS image")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

type reader struct {
	r          io.ReaderAt
	size, meta int64
	seen       map[uint64]*Node
	all        []byte // the metadata, when all of it was read

	// For Find: directories are searched for a name in place of being read.
	only  bool
	want  string
	found uint64
}

func (rd *reader) node(nid uint64, depth int) (*Node, error) {
	if n := rd.seen[nid]; n != nil {
		if n.Kind == Dir {
			return nil, damaged("a directory is met twice")
		}
		return n, nil
	}
	if len(rd.seen) >= maxNodes || depth > maxDepth || nid > uint64(rd.size)/slotSize {
		return nil, damaged("inode %d is out of bounds", nid)
	}
	at := rd.meta + int64(nid)*slotSize
	h, err := rd.bytes(at, inodeSize)
	if err != nil {
		return nil, err
	}
	n := &Node{Mode: le.Uint16(h[4:]) & 0o1777, UID: le.Uint32(h[24:]), GID: le.Uint32(h[28:]), MTime: int64(le.Uint64(h[32:]))}
	rd.seen[nid] = n
	size, block := int64(le.Uint64(h[8:])), int64(le.Uint32(h[16:]))*Block
	format := le.Uint16(h)
	if size < 0 || format != formatPlain && format != formatInline {
		return nil, damaged("inode %d is of an unknown kind", nid)
	}
	switch le.Uint16(h[4:]) & typeMask {
	case typeFile:
		n.Kind, n.Size, n.Offset = File, size, block
		if size == 0 {
			n.Offset = 0
		} else if format != formatPlain || block < DataStart || block+size > rd.size || block+size < block {
			return nil, damaged("the contents of inode %d are out of bounds", nid)
		}
		return n, nil
	case typeLink:
		n.Kind = Link
		b, err := rd.data(at, size, block, format, MaxTarget)
		n.Target = string(b)
		return n, err
	case typeDir:
		n.Kind, n.Children = Dir, map[string]*Node{}
		if rd.only && rd.want == "" {
			return n, nil
		}
		b, err := rd.data(at, size, block, format, maxDirectory)
		if err != nil {
			return nil, err
		}
		return n, rd.directory(n, b, depth)
	}
	return nil, damaged("inode %d is of an unknown type", nid)
}

// data reads what a directory or link holds.
func (rd *reader) data(at, size, block int64, format uint16, maximum int64) ([]byte, error) {
	if size > maximum {
		return nil, damaged("something is %d bytes long", size)
	}
	if format == formatPlain {
		return rd.bytes(block, size)
	}
	tail := size % Block
	out, err := rd.bytes(block, size-tail)
	if err != nil {
		return nil, err
	}
	end, err := rd.bytes(at+inodeSize, tail)
	return append(out, end...), err
}

// bytes reads n bytes at off.
func (rd *reader) bytes(off, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if off < DataStart || n < 0 || off+n > rd.size || off+n < off {
		return nil, damaged("%d bytes at %d are out of bounds", n, off)
	}
	if at := off - rd.meta; rd.all != nil && at >= 0 {
		return rd.all[at : at+n : at+n], nil
	}
	b := make([]byte, n)
	if _, err := rd.r.ReadAt(b, off); err != nil {
		return nil, damaged("%v", err)
	}
	return b, nil
}

// directory reads the entries in b into n.
func (rd *reader) directory(n *Node, b []byte, depth int) error {
	for len(b) > 0 {
		block := b[:min(len(b), Block)]
		b = b[len(block):]
		if len(block) < direntSize {
			return damaged("a directory is cut")
		}
		first := int(le.Uint16(block[8:]))
		if first%direntSize != 0 || first == 0 || first > len(block) {
			return damaged("a directory has no whole number of entries")
		}
		for at := 0; at < first; at += direntSize {
			from, to := int(le.Uint16(block[at+8:])), len(block)
			if at+direntSize < first {
				to = int(le.Uint16(block[at+direntSize+8:]))
			}
			if from < first || from >= to || to > len(block) {
				return damaged("a name is out of bounds")
			}
			name := string(bytes.TrimRight(block[from:to], "\x00"))
			if name == "." || name == ".." {
				continue
			}
			if rd.only {
				if name == rd.want {
					rd.found = le.Uint64(block[at:])
				}
				continue
			}
			if err := CheckName(name); err != nil || n.Children[name] != nil {
				return damaged("a directory holds a name that cannot be")
			}
			c, err := rd.node(le.Uint64(block[at:]), depth+1)
			if err != nil {
				return err
			}
			n.Children[name] = c
		}
	}
	return nil
}
