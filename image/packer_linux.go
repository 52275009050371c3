// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
)

// packer looks through directories of the host.
type packer struct {
	ctx      context.Context
	began    time.Time // when the look began by which the pack is called
	sum      hash.Hash
	contents *fstree.Contents // nil is to look only

	made  bool                       // the directory is of our making, and read to tell what it is
	below bool                       // what is mounted below is packed, too, where it is on a disk
	in    mountID                    // where the directory is that is looked through
	seen  map[[2]uint64]*fstree.Node // files of several names
	names map[directoryID]bool       // directories that were listed

	total amount // that was found
	max   amount // that may be
	over  error  // that it is more
	room  int64  // that the disk has for contents, in bytes
	wrote int64  // of that
	have  index  // contents that are in the file already
	had   int64  // bytes of them that a look has met
	kept  []byte // the index of those that are in it now
	tell  func(bytes int64)
	left  []string // where something is mounted that is left out
	empty int      // that are there by their name alone, as not everybody may read them

	onCopy func(name string) // for tests: called when a file is copied and not looked at again yet
}

// mountID is a mounted file system: its device, and the number of its mount, 0 where the kernel
// does not tell.
type mountID struct{ dev, mount uint64 }

// directoryID is a directory of one.
type directoryID struct {
	mountID
	ino uint64
}

// placeOf is where an open directory is.
func placeOf(fd int, st *unix.Stat_t) mountID { return mountID{st.Dev, mountOf(fd, "")} }

// others is who owns inside what is not root's on the host.
const others = 65534

// top looks through one directory, which shows at a path.
func (p *packer) top(dir *os.File, at string) (*fstree.Node, error) {
	fd := int(dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("stat", err)
	}
	p.in, p.seen = placeOf(fd, &st), map[[2]uint64]*fstree.Node{}
	n := p.describe("", &st)
	return n, p.directory(n, fd, &st, at, 0)
}

// describe is the node of something, without what is in it; nil is what is left out.
func (p *packer) describe(name string, st *unix.Stat_t) *fstree.Node {
	n := &fstree.Node{Mode: uint16(st.Mode & 0o777)}
	fmt.Fprintf(p.sum, "%q %o\n", name, st.Mode)
	if !p.made {
		n.MTime = st.Mtim.Sec
		if st.Uid != 0 {
			n.UID = others
		}
		if st.Gid != 0 {
			n.GID = others
		}
		fmt.Fprintf(p.sum, "%d %d %d %v %v\n", st.Uid, st.Gid, st.Size, st.Mtim, st.Ctim)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.Kind = fstree.File
	case unix.S_IFLNK:
		n.Kind = fstree.Link
	case unix.S_IFDIR:
		n.Kind, n.Children = fstree.Dir, map[string]*fstree.Node{}
		n.Mode |= uint16(st.Mode & unix.S_ISVTX)
	default:
		return nil
	}
	return n
}

// directory looks through an open directory (O_PATH will do), where everybody may. Another
// file system that is mounted on it is told from its own, another directory of its own where
// the kernel says so.
func (p *packer) directory(n *fstree.Node, fd int, st *unix.Stat_t, at string, depth int) error {
	if err := p.ctx.Err(); err != nil {
		return context.Cause(p.ctx)
	}
	if depth > fstree.MaxDepth {
		return fmt.Errorf("it is more than %d directories deep", fstree.MaxDepth)
	}
	if !listed(st) {
		p.empty++
		return nil
	}
	if now := placeOf(fd, st); now != p.in {
		if !p.enters(fd) {
			p.left = append(p.left, at)
			return nil
		}
		defer func(was mountID) { p.in = was }(p.in)
		p.in = now
	}
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return skipUnreadable(os.NewSyscallError("open", err))
	}
	f := os.NewFile(uintptr(again), "directory")
	defer f.Close()
	p.names[directoryID{p.in, st.Ino}] = true
	names, err := p.list(f)
	if err != nil {
		return err
	}
	for _, name := range names {
		child, err := p.entry(int(f.Fd()), name, at, depth)
		if err != nil {
			return fmt.Errorf("%.80q: %w", name, err)
		}
		if child != nil && p.contents != nil {
			n.Children[name] = child // a look only has no use for it
		}
	}
	return nil
}

// list reads the names of a directory, no more than may still be packed.
func (p *packer) list(f *os.File) ([]string, error) {
	const some = 4096
	var all []string
	for {
		names, err := f.Readdirnames(some)
		all = append(all, names...)
		for _, name := range names {
			p.total.text += int64(len(name))
		}
		p.total.files += len(names)
		if err := p.bounded(); err != nil {
			return nil, err
		}
		if err == io.EOF {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// entry looks at one name of a directory; nil is what is left out, or was removed.
func (p *packer) entry(dir int, name, at string, depth int) (*fstree.Node, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, skipUnreadable(os.NewSyscallError("stat", err))
	}
	n := p.describe(name, &st)
	if n == nil || fstree.CheckName(name) != nil {
		return nil, nil
	}
	switch n.Kind {
	case fstree.Link:
		return p.link(n, dir, name)
	case fstree.File:
		switch {
		case !public(&st):
			p.empty++
		case p.covered(dir, name):
			fmt.Fprintln(p.sum, "mounted")
			p.left = append(p.left, path.Join(at, name))
			return n, nil
		}
		return p.file(n, dir, name, &st)
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, changedMeanwhile(err)
	}
	if err != nil {
		return n, skipUnreadable(os.NewSyscallError("open", err))
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil { // it, and not what was there before
		return nil, os.NewSyscallError("stat", err)
	}
	return n, p.directory(n, fd, &st, path.Join(at, name), depth+1)
}

// link is a symbolic link; nil is one that no root can have.
func (p *packer) link(n *fstree.Node, dir int, name string) (_ *fstree.Node, err error) {
	n.Target, err = readlinkAt(dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil, changedMeanwhile(err) // it was removed, or is no link any more
	}
	if err == nil && (n.Target == "" || len(n.Target) > fstree.MaxTarget) {
		return nil, nil
	}
	p.total.text += int64(len(n.Target))
	fmt.Fprintf(p.sum, "to %q\n", n.Target)
	return n, errors.Join(err, p.bounded())
}

// covered says whether another file is mounted on one, and is not packed. The kernel has to
// tell: files of an overlay have other devices than their directories.
func (p *packer) covered(dir int, name string) bool {
	if mountOf(dir, name) == p.in.mount {
		return false
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	return !p.enters(fd)
}

// enters says whether what is mounted is packed: what lies on a disk, or in memory. What the
// kernel or a program makes up as it is read is not.
func (p *packer) enters(fd int) bool {
	var fs unix.Statfs_t
	if !p.below || unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, zfsMagic, bcachefsMagic,
		unix.OVERLAYFS_SUPER_MAGIC, unix.EROFS_SUPER_MAGIC_V1, unix.SQUASHFS_MAGIC, unix.TMPFS_MAGIC, unix.NFS_SUPER_MAGIC:
		return true
	}
	return false
}

// Numbers of statfs(2) that its header has not.
const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
)

// file is a regular file, with its contents where everybody may read them.
func (p *packer) file(n *fstree.Node, dir int, name string, st *unix.Stat_t) (*fstree.Node, error) {
	id := [2]uint64{st.Dev, st.Ino}
	if first := p.seen[id]; first != nil {
		return first, nil
	}
	if st.Nlink > 1 {
		p.seen[id] = n
	}
	if !public(st) {
		return n, nil
	}
	p.total.bytes += wholeBlocks(min(st.Size, p.max.bytes+1))
	if err := p.bounded(); err != nil {
		return n, err
	}
	if !p.made && (p.has(n, st) || p.contents == nil) {
		return n, nil
	}
	var to io.Writer = p.sum
	if p.contents != nil {
		if p.wrote += wholeBlocks(st.Size); p.wrote > p.room {
			return nil, noRoom(p.wrote, p.room)
		}
		var err error
		if n.Offset, err = p.contents.Begin(); err != nil {
			return nil, diskError(err)
		}
		to = p.contents
		if p.made {
			to = io.MultiWriter(to, p.sum)
		}
	}
	f, err := p.open(dir, name, st)
	if f == nil {
		return n, err
	}
	defer f.Close()
	if err := p.settle(st); err != nil {
		return nil, err
	}
	n.Size = st.Size
	if _, err := io.CopyN(to, &stopping{p.ctx, f}, n.Size); err != nil {
		var read *os.PathError
		switch {
		case p.ctx.Err() != nil:
			return nil, context.Cause(p.ctx)
		case errors.Is(err, io.EOF):
			return nil, changedMeanwhile(err)
		case errors.As(err, &read) && read.Op == "read":
			return nil, err
		}
		return nil, diskError(err)
	}
	if p.onCopy != nil {
		p.onCopy(name)
	}
	p.keeps(n, st)
	return n, p.same(f, st)
}

// open opens a file for reading that is still what was looked at; nil is one that we may not
// read. Nothing else is opened that has its name by then: a device might do something.
func (p *packer) open(dir int, name string, st *unix.Stat_t) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, changedMeanwhile(err)
	}
	if err != nil {
		return nil, skipUnreadable(os.NewSyscallError("open", err))
	}
	found := os.NewFile(uintptr(fd), name)
	defer found.Close()
	if err := p.same(found, st); err != nil {
		return nil, err
	}
	fd, err = unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if err != nil { // the host has no /proc, say
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// stopping reads until a context ends.
type stopping struct {
	ctx context.Context
	r   io.Reader
}

func (s *stopping) Read(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.r.Read(b)
}

// same refuses a file that is not what was looked at, or was written since. What is of our
// making is read for its digest: its times may change.
func (p *packer) same(f *os.File, st *unix.Stat_t) error {
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil {
		return os.NewSyscallError("stat", err)
	}
	if now.Ino != st.Ino || now.Dev != st.Dev || now.Size != st.Size || !public(&now) || !p.made && (now.Mtim != st.Mtim || now.Ctim != st.Ctim) {
		return changedMeanwhile(nil)
	}
	return nil
}

// settle waits, for at most settled, until what is written to a file changes its times. A
// time in the future needs no wait: another change has another one. What would be waited for
// later than that has changed since the first look: all waits together are no longer, whatever
// is written to meanwhile.
func (p *packer) settle(st *unix.Stat_t) error {
	age := time.Since(time.Unix(st.Ctim.Unix()))
	if p.made || age < 0 || age >= settled {
		return nil
	}
	if time.Since(p.began) > settled {
		return changedMeanwhile(nil)
	}
	t := time.NewTimer(settled - age)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// public says whether everybody may read a file, and listed a directory.
func public(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o004 != 0 }
func listed(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o005 == 0o005
}
