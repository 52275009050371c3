// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// What is mounted is copied into the machine: a guest sees no file of the host itself.
const (
	maxCopied      = 1 << 30 // bytes of all mounts together
	maxCopiedFiles = 100_000
	maxCopiedDepth = 64
)

// copies is one file system with a copy of each mount, called by its number.
type copies struct {
	ctx      context.Context
	user     sandbox.User
	contents *fstree.Contents
	bytes    int64
	files    int
	owner    uint32 // of the mount's source: the sandbox's user inside
	mount    *sandbox.Mount
	masked   map[string]bool // targets that are hidden
}

// writeCopies writes the copies of all mounts of s to f, which is empty. Links are copied as
// links, whatever they lead to; sockets, pipes and devices are left out. Of what is hidden,
// and of what neither the source's owner has nor others may read, the contents stay here: the
// disk is the guest's, and what breaks out of it sees all of it. Of a public mount those of the
// owner's own files that others may not read stay here, too.
func writeCopies(ctx context.Context, s *sandbox.Spec, f *os.File) error {
	c := &copies{ctx: ctx, user: s.User, contents: fstree.NewContents(f), masked: map[string]bool{}}
	for _, m := range s.Masks {
		c.masked[m.Target] = true
	}
	root := fstree.NewDir()
	for i := range s.Mounts {
		c.mount = &s.Mounts[i]
		n, err := c.source()
		if err != nil {
			return err
		}
		root.Children[strconv.Itoa(i)] = n
	}
	end, err := c.contents.End()
	if err != nil {
		return unkept(err)
	}
	var uuid [16]byte
	rand.Read(uuid[:])
	size, err := fstree.WriteEROFS(f, root, end, uuid)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		return unkept(err)
	}
	return nil
}

// source copies what is mounted.
func (c *copies) source() (*fstree.Node, error) {
	if c.mount.Source == nil {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "mount "+c.mount.Name, "it was not opened")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(c.mount.Source.Fd()), &st); err != nil {
		return nil, c.unread(c.mount.Target, err)
	}
	c.owner = st.Uid
	n, err := c.node(int(c.mount.Source.Fd()), c.mount.Target, 0)
	if err == nil && n == nil {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "mount "+c.mount.Name, "it is neither a file nor a directory")
	}
	return n, err
}

func (c *copies) unread(at string, err error) error {
	return &sandbox.Error{Op: "mount " + c.mount.Name + ", at " + sandbox.Quoted(at), Kind: sandbox.ErrUnavailable, Problem: "it cannot be copied into the machine", Cause: err}
}

func (c *copies) tooMuch(what string) error {
	return &sandbox.Error{Op: "mount " + c.mount.Name, Kind: sandbox.ErrUnsupported, Problem: "a virtual machine gets a copy, and it is more than " + what,
		Hint: "mount less, put it into a template, or run on a level that shows the host's files: --isolation gvisor"}
}

// node copies the object behind a descriptor (O_PATH will do); nil is what is not copied.
func (c *copies) node(fd int, at string, depth int) (*fstree.Node, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, context.Cause(c.ctx)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, c.unread(at, err)
	}
	if c.files++; c.files > maxCopiedFiles {
		return nil, c.tooMuch(strconv.Itoa(maxCopiedFiles) + " files")
	}
	if depth > maxCopiedDepth {
		return nil, c.tooMuch(strconv.Itoa(maxCopiedDepth) + " directories deep")
	}
	n := &fstree.Node{Mode: uint16(st.Mode & 0o777), UID: otherUser, GID: otherUser, MTime: st.Mtim.Sec}
	if st.Uid == c.owner {
		n.UID, n.GID = uint32(c.user.UID), uint32(c.user.GID)
	}
	closed := c.masked[at] || st.Uid != c.owner && st.Mode&0o004 == 0
	if c.mount.Public {
		n.UID, n.GID = publicOwner(st.Uid), publicOwner(st.Gid)
		closed = closed || st.Mode&0o004 == 0 || st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o001 == 0
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.Kind = fstree.File
		if closed {
			return n, c.empty(n)
		}
		return n, c.file(n, fd, at)
	case unix.S_IFDIR:
		n.Kind, n.Children = fstree.Dir, map[string]*fstree.Node{}
		if closed {
			return n, nil
		}
		return n, c.directory(n, fd, at, depth)
	case unix.S_IFLNK:
		n.Kind = fstree.Link
		b := make([]byte, fstree.MaxTarget+1)
		size, err := unix.Readlinkat(fd, "", b)
		if err != nil || size == 0 || size > fstree.MaxTarget {
			return nil, c.unread(at, errors.Join(err, errors.New("a link leads nowhere")))
		}
		n.Target = string(b[:size])
		return n, nil
	}
	return nil, nil
}

// otherUser owns inside what another user than the source's owner has on the host.
const otherUser = 65534

// publicOwner is who owns a file of a public mount inside: root's stays root's.
func publicOwner(id uint32) uint32 {
	if id == 0 {
		return 0
	}
	return otherUser
}

// open opens the object behind a descriptor for reading.
func open(fd, flags int) (*os.File, error) {
	name := fmt.Sprintf("/proc/self/fd/%d", fd)
	opened, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(opened), name), nil
}

// empty is a file without its contents.
func (c *copies) empty(n *fstree.Node) (err error) {
	if n.Offset, err = c.contents.Begin(); err != nil {
		return unkept(err)
	}
	return nil
}

// file copies a file. One that may not be read is empty, and not to be read inside either.
func (c *copies) file(n *fstree.Node, fd int, at string) error {
	if err := c.empty(n); err != nil {
		return err
	}
	f, err := open(fd, 0)
	if errors.Is(err, os.ErrPermission) {
		n.Mode = 0
		return nil
	}
	if err != nil {
		return c.unread(at, err)
	}
	defer f.Close()
	n.Size, err = io.Copy(c.contents, io.LimitReader(&until{c.ctx, f}, maxCopied-c.bytes+1))
	if c.bytes += n.Size; c.bytes > maxCopied {
		return c.tooMuch("1 GiB")
	}
	if err != nil {
		return c.unread(at, err)
	}
	return nil
}

// until reads until its context ends.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u *until) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}

// directory copies what is in a directory. One that may not be listed is empty.
func (c *copies) directory(n *fstree.Node, fd int, at string, depth int) error {
	f, err := open(fd, unix.O_DIRECTORY)
	if errors.Is(err, os.ErrPermission) {
		n.Mode = 0
		return nil
	}
	if err != nil {
		return c.unread(at, err)
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if err := c.entry(n, int(f.Fd()), name, at, depth); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return c.unread(at, err)
		}
	}
}

// entry copies one name of a directory.
func (c *copies) entry(n *fstree.Node, dir int, name, at string, depth int) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil // it was removed meanwhile
	}
	at = path.Join(at, name)
	if err != nil {
		return c.unread(at, err)
	}
	defer unix.Close(fd)
	made, err := c.node(fd, at, depth+1)
	if made != nil {
		n.Children[name] = made
	}
	return err
}
