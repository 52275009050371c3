// SPDX-License-Identifier: Apache-2.0

package fstree

import (
	"fmt"
	"io"
	"math"
)

// WriteEROFS completes an image whose file contents are in w already, from
// DataStart to dataEnd, where the nodes of the tree say: it writes the metadata
// from dataEnd on, and the superblock. uuid identifies the image. It returns
// the image's size in bytes, to which w is to be cut.
func WriteEROFS(w io.WriterAt, root *Node, dataEnd int64, uuid [16]byte) (int64, error) {
	p := &plan{nodes: map[*Node]*inode{}, metaAt: blocks(dataEnd) * Block}
	if root.Kind != Dir {
		return 0, fmt.Errorf("erofs: the root is no directory")
	}
	if err := p.add(root, root); err != nil {
		return 0, err
	}
	p.place()
	if p.end/Block > math.MaxUint32 {
		return 0, fmt.Errorf("erofs: the image is too large")
	}
	if err := p.write(w, dataEnd); err != nil {
		return 0, err
	}
	super := make([]byte, Block)
	s := super[superOffset:]
	le.PutUint32(s[0:], magic)
	s[12] = blockBits
	le.PutUint16(s[14:], uint16(p.order[0].nid())) // firstNID, or the next block's first
	le.PutUint64(s[16:], uint64(len(p.order)))
	le.PutUint32(s[36:], uint32(p.end/Block))
	le.PutUint32(s[40:], uint32(p.metaAt/Block))
	copy(s[48:64], uuid[:])
	_, err := w.WriteAt(super, 0)
	return p.end, err
}

// plan is where everything goes.
type plan struct {
	nodes map[*Node]*inode
	order []*inode // as they are written: parents first, names sorted

	metaAt, end int64
}

// inode is one node's place.
type inode struct {
	*Node
	parent *inode
	number int
	links  int

	at   int64  // offset in the metadata
	data []byte // of a directory or link; its tail may be inline
	size int64
	// blocks is where what is not inline lies, in blocks; 0 when there is none.
	block  int64
	inline bool
}

// add lists n and what is below it.
func (p *plan) add(n, parent *Node) error {
	if have := p.nodes[n]; have != nil {
		if n.Kind == Dir {
			return fmt.Errorf("erofs: a directory has two names")
		}
		have.links++
		return nil
	}
	i := &inode{Node: n, number: len(p.order) + 1, links: 1}
	p.nodes[n] = i
	i.parent = p.nodes[parent]
	p.order = append(p.order, i)
	switch n.Kind {
	case File:
		if n.Size < 0 || n.Size > 0 && (n.Offset < DataStart || n.Offset%Block != 0 || n.Offset+n.Size > p.metaAt) {
			return fmt.Errorf("erofs: contents of %d bytes at %d are not in the image", n.Size, n.Offset)
		}
		i.size = n.Size
		return nil
	case Link:
		if n.Target == "" || len(n.Target) > MaxTarget {
			return fmt.Errorf("erofs: a link has a target of %d bytes", len(n.Target))
		}
		i.data = []byte(n.Target)
		i.size = int64(len(i.data))
		return nil
	}
	i.links = 2
	for _, name := range n.Names() {
		if err := CheckName(name); err != nil {
			return fmt.Errorf("erofs: %w", err)
		}
		c := n.Children[name]
		if c.Kind == Dir {
			i.links++
		}
		if err := p.add(c, n); err != nil {
			return err
		}
	}
	i.size = directorySize(n)
	return nil
}

// place gives every inode its offset, then every directory that is too large to
// be inline its blocks behind all inodes.
func (p *plan) place() {
	at := int64(firstNID * slotSize)
	for _, i := range p.order {
		need, tail := int64(inodeSize), i.size%Block
		if i.Kind != File && tail > 0 && tail <= Block-inodeSize {
			i.inline = true
			need += tail
		}
		if at%Block+need > Block {
			at = blocks(at) * Block
		}
		i.at = at
		at = (at + need + slotSize - 1) / slotSize * slotSize
	}
	next := p.metaAt + blocks(at)*Block
	for _, i := range p.order {
		if i.Kind == File {
			if i.size > 0 {
				i.block = i.Offset / Block
			}
			continue
		}
		whole := blocks(i.size)
		if i.inline {
			whole = i.size / Block
		}
		if whole > 0 {
			i.block = next / Block
			next += whole * Block
		}
	}
	p.end = next
}

// nid is the number of an inode: its place, in slots.
func (i *inode) nid() uint64 { return uint64(i.at / slotSize) }

// write writes the metadata, in pieces of a few hundred KiB.
func (p *plan) write(w io.WriterAt, dataEnd int64) error {
	out := &sequence{w: w, at: p.metaAt}
	if pad := p.metaAt - dataEnd; pad > 0 {
		if _, err := w.WriteAt(make([]byte, pad), dataEnd); err != nil {
			return err
		}
	}
	for _, i := range p.order {
		if i.Kind == Dir {
			i.data = p.directory(i)
		}
		out.padTo(p.metaAt + i.at)
		out.buf = append(out.buf, p.header(i)...)
		if i.inline {
			out.buf = append(out.buf, i.data[i.size/Block*Block:]...)
		}
		if i.Kind == Dir && i.inline && i.size < Block {
			i.data = nil // written; most directories are small
		}
		if err := out.flush(1 << 18); err != nil {
			return err
		}
	}
	for _, i := range p.order {
		if i.Kind == File || i.block == 0 {
			continue
		}
		out.padTo(i.block * Block)
		whole := i.data
		if i.inline {
			whole = i.data[:i.size/Block*Block]
		}
		out.buf = append(out.buf, whole...)
		if err := out.flush(1 << 18); err != nil {
			return err
		}
	}
	out.padTo(p.end)
	return out.flush(0)
}

// header is struct erofs_inode_extended.
func (p *plan) header(i *inode) []byte {
	b := make([]byte, inodeSize)
	le.PutUint16(b[0:], formatPlain)
	if i.inline {
		le.PutUint16(b[0:], formatInline)
	}
	mode := i.Mode & 0o1777
	switch i.Kind {
	case Dir:
		mode |= typeDir
	case Link:
		mode = typeLink | 0o777
	default:
		mode = typeFile | mode&0o777
	}
	le.PutUint16(b[4:], mode)
	le.PutUint64(b[8:], uint64(i.size))
	le.PutUint32(b[16:], uint32(i.block))
	le.PutUint32(b[20:], uint32(i.number))
	le.PutUint32(b[24:], i.UID)
	le.PutUint32(b[28:], i.GID)
	le.PutUint64(b[32:], uint64(i.MTime))
	le.PutUint32(b[44:], uint32(i.links))
	return b
}

// sequence writes one piece after the other.
type sequence struct {
	w   io.WriterAt
	at  int64 // of buf
	buf []byte
}

func (s *sequence) padTo(at int64) {
	if n := at - s.at - int64(len(s.buf)); n > 0 {
		s.buf = append(s.buf, make([]byte, n)...)
	}
}

// flush writes when there are more than most bytes.
func (s *sequence) flush(maximum int) error {
	if len(s.buf) <= maximum {
		return nil
	}
	_, err := s.w.WriteAt(s.buf, s.at)
	s.at += int64(len(s.buf))
	s.buf = s.buf[:0]
	return err
}
