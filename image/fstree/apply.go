// SPDX-License-Identifier: Apache-2.0

package fstree

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Unpacker builds the tree of one image. It is for one goroutine.
type Unpacker struct {
	Root *Node
	Left Left

	sink    Sink
	bounds  Bounds
	layer   int
	changes bool  // the layer is an overlay's upper directory; see ApplyChanges
	adding  bool  // a directory and what is none do not take the place of each other; see Add
	bytes   int64 // of all files so far
	maximum int64 // what bytes may be at the end of this layer
	entries int
	buf     []byte
	pruned  map[*Node]int // the layer in which what is older was last removed below it
}

// NewUnpacker starts with an empty tree.
func NewUnpacker(sink Sink, b Bounds) *Unpacker { return NewUnpackerOn(NewDir(), sink, b) }

// NewUnpackerOn starts with a tree that is there. What its files hold counts for the
// bounds.
func NewUnpackerOn(root *Node, sink Sink, b Bounds) *Unpacker {
	u := &Unpacker{Root: root, sink: sink, bounds: b.withDefaults(), buf: make([]byte, 256<<10), pruned: map[*Node]int{}}
	u.entries, u.bytes = root.Count()
	return u
}

// Apply puts one layer on top of those before it. After an error the tree is
// of no use. It returns ErrDenied for what no honest image has and for what is
// beyond the bounds, ErrInvalid for what cannot be read or has another digest.
func (u *Unpacker) Apply(ctx context.Context, b Blob) error {
	u.layer++
	u.maximum = u.bounds.Bytes
	if b.Size >= 0 { // holes in files are not in the archive, so the stream's own bound does not see them
		u.maximum = min(u.maximum, u.bytes+ratioFrom+b.Size*u.bounds.Ratio)
	}
	s, err := open(b, u.bounds.Ratio)
	if err != nil {
		return err
	}
	defer s.close()
	if err := u.tar(ctx, tar.NewReader(s)); err != nil {
		if s.err != nil {
			return s.err // what cut the stream short, in its own words
		}
		return err
	}
	return s.finish()
}

// ApplyChanges puts the layer of an overlay on top, a tar archive as
// sandbox.ChangeReader has it: a removal is a character device 0:0, and a directory that
// hides the one below it says so in an attribute. Names that begin with .wh. are names.
// Errors are those of Apply.
func (u *Unpacker) ApplyChanges(ctx context.Context, r io.Reader) error {
	u.layer++
	u.maximum, u.changes = u.bounds.Bytes, true
	defer func() { u.changes = false }()
	return u.tar(ctx, tar.NewReader(r))
}

// Add puts files in, as COPY does: names are names, a file takes the place of a file or
// link. ErrInvalid is for a directory where something else is, and the other way round:
// all that is below would be lost, or a link such as /lib. Other errors are those of Apply.
func (u *Unpacker) Add(ctx context.Context, r io.Reader) error {
	u.adding = true
	defer func() { u.adding = false }()
	return u.ApplyChanges(ctx, r)
}

// tar applies the entries of an archive.
func (u *Unpacker) tar(ctx context.Context, r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ctx.Err()
		}
		if err != nil {
			return broken(err, "layer %d is no archive", u.layer)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if u.entries++; u.entries > u.bounds.Entries {
			return tooMuch("it holds more than %d files", u.bounds.Entries)
		}
		if err := u.entry(h, r); err != nil {
			return err
		}
	}
}

// whiteout is how a layer removes what is below it.
const (
	whiteout = ".wh."
	reserved = ".wh..wh." // of the tool that invented whiteouts
	opaque   = ".wh..wh..opq"

	opaqueRecord = "SCHILY.xattr.trusted.overlay.opaque"
)

// entry applies one entry.
func (u *Unpacker) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	parts, err := u.split(h.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if h.Typeflag == tar.TypeDir {
			return u.describe(u.Root, h)
		}
		return hostile("an entry that is no directory is called %q", h.Name)
	}
	name, above := parts[len(parts)-1], parts[:len(parts)-1]
	if strings.HasPrefix(name, whiteout) && !u.changes {
		return u.remove(above, name)
	}
	parent, err := u.Root.Walk(above, u.makeDir)
	if err != nil {
		return hostile("%q cannot be placed: %v", h.Name, err)
	}
	if at := parent.Children[name]; u.adding && at != nil && (at.Kind == Dir) != (h.Typeflag == tar.TypeDir) {
		return misfit(h.Name, at.Kind)
	}
	if u.changes && (h.PAXRecords[opaqueRecord] == "y" || h.Typeflag == tar.TypeChar) {
		delete(parent.Children, name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(parent, name, h)
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse: // 0 is what old archives have
		return u.file(parent, name, h, r)
	case tar.TypeSymlink:
		return u.symlink(parent, name, h)
	case tar.TypeLink:
		return u.hardLink(parent, name, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if !u.changes || h.Devmajor != 0 || h.Devminor != 0 {
			u.Left.Devices++
		}
		delete(parent.Children, name) // it is in the place of what was there
		return nil
	}
	return hostile("%q is of the unknown type %q", h.Name, h.Typeflag)
}

// misfit is the error for a name that is something else already.
func misfit(name string, is Kind) error {
	e := &sandbox.Error{Op: "/" + shorten(strings.Trim(name, "/")), Kind: sandbox.ErrInvalid, Hint: "copy it to another place, or remove what is there in a RUN before"}
	switch is {
	case Dir:
		e.Problem = "it is a directory, and no file can take its place"
	case Link:
		e.Problem = "it is a link, and no directory can take its place"
	default:
		e.Problem = "it is a file, and no directory can take its place"
	}
	return e
}

// split takes a name apart and refuses what an archive of files never has. A
// leading slash or "./" is only style.
func (u *Unpacker) split(name string) ([]string, error) {
	if len(name) > 4095 {
		return nil, hostile("a name is %d bytes long", len(name))
	}
	parts := slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
	if len(parts) > u.bounds.Depth {
		return nil, tooMuch("a file lies %d directories deep", len(parts))
	}
	for _, p := range parts {
		if err := CheckName(p); err != nil {
			return nil, hostile("%q: %v", shorten(name), err)
		}
	}
	return parts, nil
}

func shorten(s string) string { return sandbox.Clip(s, 100) }

// makeDir makes a directory that a layer does not mention but uses.
func (u *Unpacker) makeDir(parent *Node, name string) (*Node, error) {
	if err := CheckName(name); err != nil {
		return nil, err // a link's target may hold anything
	}
	if u.entries++; u.entries > u.bounds.Entries {
		return nil, tooMuch("it holds more than %d files", u.bounds.Entries)
	}
	d := NewDir()
	d.Layer = u.layer
	parent.Children[name] = d
	return d, nil
}

// dir makes a directory, or describes one that is there anew.
func (u *Unpacker) dir(parent *Node, name string, h *tar.Header) error {
	d := parent.Children[name]
	if d == nil || d.Kind != Dir {
		d = NewDir()
		parent.Children[name] = d
	}
	return u.describe(d, h)
}

// describe sets what a header says of a node.
func (u *Unpacker) describe(n *Node, h *tar.Header) error {
	if h.Uid < 0 || h.Gid < 0 || h.Uid >= math.MaxUint32 || h.Gid >= math.MaxUint32 {
		return hostile("%q belongs to uid %d and gid %d", shorten(h.Name), h.Uid, h.Gid)
	}
	n.UID, n.GID, n.Layer = uint32(h.Uid), uint32(h.Gid), u.layer
	n.MTime = min(max(h.ModTime.Unix(), 0), math.MaxUint32)
	n.Mode = uint16(h.Mode & 0o777)
	if n.Kind == Dir {
		n.Mode |= uint16(h.Mode & 0o1000) // sticky, as /tmp has
	}
	if h.Mode&0o6000 != 0 {
		u.Left.SetID++
	}
	for key := range h.PAXRecords {
		if key != opaqueRecord && strings.HasPrefix(key, "SCHILY.xattr.") || strings.HasPrefix(key, "LIBARCHIVE.xattr.") {
			u.Left.Xattrs++
			break
		}
	}
	return nil
}

// file makes a file; it takes the place of whatever was there.
func (u *Unpacker) file(parent *Node, name string, h *tar.Header, r io.Reader) error {
	if h.Size < 0 || h.Size > u.maximum-u.bytes {
		return tooMuch("its files are larger than %d bytes together", u.maximum)
	}
	n := &Node{Kind: File}
	if err := u.describe(n, h); err != nil {
		return err
	}
	if h.Size > 0 {
		off, err := u.sink.Begin()
		if err != nil {
			return err
		}
		n.Offset = off
		n.Size, err = u.copy(r)
		if err != nil {
			return err
		}
		u.bytes += n.Size
		if n.Size != h.Size {
			return broken(nil, "%q is cut", shorten(h.Name))
		}
	}
	parent.Children[name] = n
	return nil
}

// copy passes a file's contents on.
func (u *Unpacker) copy(r io.Reader) (total int64, err error) {
	for {
		n, rerr := r.Read(u.buf)
		if n > 0 {
			if _, err := u.sink.Write(u.buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if errors.Is(rerr, io.EOF) {
			return total, nil
		}
		if rerr != nil {
			return total, broken(rerr, "layer %d cannot be read", u.layer)
		}
	}
}

func (u *Unpacker) symlink(parent *Node, name string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > MaxTarget || strings.ContainsRune(h.Linkname, 0) {
		return hostile("%q is a link to a name that cannot be", shorten(h.Name))
	}
	n := &Node{Kind: Link, Target: h.Linkname}
	if err := u.describe(n, h); err != nil {
		return err
	}
	n.Mode = 0o777
	parent.Children[name] = n
	return nil
}

// hardLink gives a file of this image a second name.
func (u *Unpacker) hardLink(parent *Node, name string, h *tar.Header) error {
	parts, err := u.split(h.Linkname)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return hostile("%q is a hard link to %q", shorten(h.Name), shorten(h.Linkname))
	}
	dir, err := u.Root.Walk(parts[:len(parts)-1], nil)
	if err != nil {
		return hostile("%q is a hard link to %q, which is not in the image", shorten(h.Name), shorten(h.Linkname))
	}
	to := dir.Children[parts[len(parts)-1]]
	if to == nil || to.Kind == Dir {
		return hostile("%q is a hard link to %q, which is no file of the image", shorten(h.Name), shorten(h.Linkname))
	}
	parent.Children[name] = to
	return nil
}

// remove applies a whiteout: it takes away what layers below have, and leaves
// what this one brings.
func (u *Unpacker) remove(above []string, name string) error {
	parent, err := u.Root.Walk(above, nil)
	if errors.Is(err, ErrNotFound) {
		return nil // there is nothing to remove
	}
	if err != nil {
		return hostile("a removal in %q cannot be placed: %v", strings.Join(above, "/"), err)
	}
	switch hidden := strings.TrimPrefix(name, whiteout); {
	case name == opaque:
		u.prune(parent)
	case strings.HasPrefix(name, reserved):
		// Bookkeeping of that tool: not part of the image.
	case CheckName(hidden) != nil:
		return hostile("a removal is called %q", shorten(name))
	default:
		if c := parent.Children[hidden]; c != nil && u.prune(c) {
			delete(parent.Children, hidden)
		}
	}
	return nil
}

// prune removes what is older than this layer below n, and says whether n
// itself is and has nothing left.
//
// A layer brings nothing older than itself, so one look below n is enough. A
// hostile one has a hundred thousand removals, each of a hundred thousand files.
func (u *Unpacker) prune(n *Node) bool {
	if n.Kind == Dir && u.pruned[n] != u.layer {
		u.pruned[n] = u.layer
		for name, c := range n.Children {
			if u.prune(c) {
				delete(n.Children, name)
			}
		}
	}
	return n.Layer < u.layer && len(n.Children) == 0
}
