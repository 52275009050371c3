// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
)

// unpack writes the tree of an image to dir/root.
//
// Every object is made with a single component relative to the directory that
// was just made, as a new one, so that nothing in the tree can lead elsewhere.
// All of it belongs to us; there is no device, no set-id bit and no attribute in
// it. What is root's in the image keeps its modes; what is another user's is
// readable for everybody, because its owner is lost and the only reader is that
// user. Directories are 0700 or more for us, so that it can be read and removed
// again, and no other user may write anything.
func unpack(ctx context.Context, f *os.File, dir string) error {
	root, err := readTree(f)
	if err != nil {
		return err
	}
	return unpackTree(ctx, f, root, filepath.Join(dir, "root"))
}

// unpackTree writes a part of a tree to a new directory.
func unpackTree(ctx context.Context, f *os.File, root *fstree.Node, at string) error {
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	top, err := os.OpenFile(at, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer top.Close()
	u := &unpacker{ctx: ctx, from: f, top: top, names: map[*fstree.Node]string{}, buf: make([]byte, 256<<10)}
	if err := u.fill(top, "", root); err != nil {
		return diskError(err)
	}
	return diskError(u.describe(top, root))
}

type unpacker struct {
	ctx   context.Context
	from  *os.File
	top   *os.File
	names map[*fstree.Node]string // where a file is already, below top
	buf   []byte
}

// fill makes what is in n.
func (u *unpacker) fill(dir *os.File, at string, n *fstree.Node) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	for _, name := range n.Names() {
		if err := fstree.CheckName(name); err != nil {
			return err
		}
		if err := u.make(dir, path.Join(at, name), name, n.Children[name]); err != nil {
			return fmt.Errorf("%s: %w", path.Join(at, name), err)
		}
	}
	return nil
}

func (u *unpacker) make(dir *os.File, at, name string, n *fstree.Node) error {
	fd := int(dir.Fd())
	switch n.Kind {
	case fstree.Link:
		if err := unix.Symlinkat(n.Target, fd, name); err != nil {
			return err
		}
		return unix.UtimesNanoAt(fd, name, times(n), unix.AT_SYMLINK_NOFOLLOW)
	case fstree.Dir:
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			return err
		}
		sub, err := openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer sub.Close()
		if err := u.fill(sub, at, n); err != nil {
			return err
		}
		return u.describe(sub, n)
	}
	if have, ok := u.names[n]; ok {
		err := unix.Linkat(int(u.top.Fd()), have, fd, name, 0)
		if !errors.Is(err, unix.EMLINK) {
			return err
		}
	}
	f, err := openat(fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if len(at) < unix.PathMax {
		u.names[n] = at
	}
	if n.Size > 0 {
		if _, err := io.CopyBuffer(onlyWriter{f}, io.NewSectionReader(u.from, n.Offset, n.Size), u.buf); err != nil {
			return err
		}
	}
	return u.describe(f, n)
}

// onlyWriter keeps io.CopyBuffer to its buffer.
type onlyWriter struct{ io.Writer }

func openat(dir int, name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// describe sets mode and time.
func (u *unpacker) describe(f *os.File, n *fstree.Node) error {
	mode := uint32(n.Mode & 0o777)
	if n.UID != 0 {
		mode |= mode >> 6 & 0o5
	}
	mode &^= 0o022
	mode |= 0o400
	if n.Kind == fstree.Dir {
		mode |= 0o700
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return err
	}
	return unix.UtimesNanoAt(int(f.Fd()), "", times(n), unix.AT_EMPTY_PATH)
}

func times(n *fstree.Node) []unix.Timespec {
	return []unix.Timespec{{Sec: n.MTime}, {Sec: n.MTime}}
}
