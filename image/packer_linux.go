// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
)

// packer looks through directories of the host.
type packer struct {
	ctx      context.Context
	sum      hash.Hash
	contents *fstree.Contents // nil is to look only

	made bool                       // the directory is of our making, and read to tell what it is
	dev  uint64                     // of the directory that is looked through
	mnt  uint64                     // its mount, 0 where the kernel does not tell
	seen map[[2]uint64]*fstree.Node // files of several names

	onCopy func(name string) // for tests: called when a file is copied and not looked at again yet
}

// others is who owns inside what is not root's on the host.
const others = 65534

// top looks through one directory. What is mounted in it is there by its name alone; another
// directory of the same file system, or a file, is told from its own where the kernel says so.
func (p *packer) top(dir *os.File) (*fstree.Node, error) {
	fd := int(dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("stat", err)
	}
	p.dev, p.mnt, p.seen = st.Dev, mountOf(fd, ""), map[[2]uint64]*fstree.Node{}
	n := p.describe("", &st)
	return n, p.directory(n, fd, &st, 0)
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

// directory looks through an open directory (O_PATH will do), where everybody may.
func (p *packer) directory(n *fstree.Node, fd int, st *unix.Stat_t, depth int) error {
	if err := p.ctx.Err(); err != nil {
		return context.Cause(p.ctx)
	}
	if depth > fstree.MaxDepth {
		return fmt.Errorf("it is more than %d directories deep", fstree.MaxDepth)
	}
	if st.Mode&0o005 != 0o005 || st.Dev != p.dev || mountOf(fd, "") != p.mnt {
		return nil
	}
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return skipUnreadable(os.NewSyscallError("open", err))
	}
	f := os.NewFile(uintptr(again), "directory")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		child, err := p.entry(int(f.Fd()), name, depth)
		if err != nil {
			return fmt.Errorf("%.80q: %w", name, err)
		}
		if child != nil {
			n.Children[name] = child
		}
	}
	return nil
}

// entry looks at one name of a directory; nil is what is left out, or was removed.
func (p *packer) entry(dir int, name string, depth int) (*fstree.Node, error) {
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
		var err error
		n.Target, err = readlinkAt(dir, name)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			return nil, changedMeanwhile(err) // it was removed, or is no link any more
		}
		if err == nil && (n.Target == "" || len(n.Target) > fstree.MaxTarget) {
			return nil, nil
		}
		fmt.Fprintf(p.sum, "to %q\n", n.Target)
		return n, err
	case fstree.File:
		if public(&st) && mountOf(dir, name) != p.mnt {
			fmt.Fprintln(p.sum, "mounted")
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
	return n, p.directory(n, fd, &st, depth+1)
}

// file is a regular file, with its contents where everybody may read them.
func (p *packer) file(n *fstree.Node, dir int, name string, st *unix.Stat_t) (*fstree.Node, error) {
	id := [2]uint64{st.Dev, st.Ino}
	if first := p.seen[id]; first != nil {
		return first, nil
	}
	if st.Nlink > 1 {
		p.seen[id] = n
	}
	if !public(st) || p.contents == nil && !p.made {
		return n, nil
	}
	var to io.Writer = p.sum
	if p.contents != nil {
		var err error
		if n.Offset, err = p.contents.Begin(); err != nil {
			return nil, diskError(err)
		}
		to = p.contents
		if p.made {
			to = io.MultiWriter(to, p.sum)
		}
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil, changedMeanwhile(err) // it was removed, or is a link
	}
	if err != nil {
		return n, skipUnreadable(os.NewSyscallError("open", err))
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := p.same(f, st); err != nil {
		return nil, err
	}
	if err := p.settle(st); err != nil {
		return nil, err
	}
	n.Size = st.Size
	if _, err := io.CopyN(to, f, n.Size); err != nil {
		var read *os.PathError
		switch {
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
	return n, p.same(f, st)
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
// time in the future needs no wait: another change has another one.
func (p *packer) settle(st *unix.Stat_t) error {
	age := time.Since(time.Unix(st.Ctim.Unix()))
	if p.made || age < 0 || age >= settled {
		return nil
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

// public says whether everybody may read a file.
func public(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o004 != 0 }
