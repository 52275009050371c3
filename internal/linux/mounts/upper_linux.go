// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxDepth is how many directories lie in one another at most. Each is an open file
// while what is in it is read.
const maxDepth = 256

// WriteUpper writes the upper layer at dir, an open directory, to w as
// [sandbox.ChangeReader] says. Nothing may write to it meanwhile. It follows no link,
// opens nothing but directories and regular files, and crosses no mount. Pipes and
// sockets are left out. So is the content of files that the directory's owner, who is the
// sandbox's user, may not read: the kernel copied them up as root, for a rename. They come
// as pipes. When ctx ends it stops with the cause.
func WriteUpper(ctx context.Context, dir *os.File, marks OverlayMarks, w io.Writer) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("look at an upper layer: %w", err)
	}
	l := &layer{ctx: ctx, tar: tar.NewWriter(w), dev: st.Dev, seen: map[uint64]string{}, uid: st.Uid, gid: st.Gid, marks: marks}
	return l.write(dir)
}

// WriteRoot is [WriteUpper] of the layer over a root file system, which root wrote to: it
// comes with owners, times, and the content of every file. What covered
// names, relative to dir, is left out: something is mounted there.
func WriteRoot(ctx context.Context, dir *os.File, marks OverlayMarks, covered func(name string) bool, w io.Writer) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("look at an upper layer: %w", err)
	}
	l := &layer{ctx: ctx, tar: tar.NewWriter(w), dev: st.Dev, seen: map[uint64]string{}, marks: marks, covered: covered, root: true}
	return l.write(dir)
}

func (l *layer) write(dir *os.File) error {
	if err := l.directory(int(dir.Fd()), "", 0); err != nil {
		return err
	}
	return l.tar.Close()
}

// layer is one reading.
type layer struct {
	ctx  context.Context
	tar  *tar.Writer
	dev  uint64
	seen map[uint64]string // files of several names, by inode

	uid, gid uint32 // of the sandbox's user
	marks    OverlayMarks

	root    bool                   // owners and times count, and every file's content
	covered func(name string) bool // nil: nothing is
}

// directory writes what lies in an open directory.
func (l *layer) directory(fd int, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%.80q lies more than %d directories deep", name, maxDepth)
	}
	names, err := list(fd)
	if err != nil {
		return fmt.Errorf("read %.80q of an upper layer: %w", name, err)
	}
	for _, n := range names {
		if l.ctx.Err() != nil {
			return context.Cause(l.ctx)
		}
		if l.covered != nil && l.covered(path.Join(name, n)) {
			continue
		}
		if err := l.entry(fd, n, path.Join(name, n), depth); err != nil {
			return err
		}
	}
	return nil
}

// list reads the names in an open directory, sorted.
func list(fd int) ([]string, error) {
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(again), "directory")
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// entry writes one name of a directory.
func (l *layer) entry(dir int, base, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("look at %.80q of an upper layer: %w", name, err)
	}
	if st.Dev != l.dev {
		return fmt.Errorf("%.80q of an upper layer is a mount", name)
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o7777), Format: tar.FormatPAX}
	if l.root {
		h.Uid, h.Gid, h.ModTime = int(st.Uid), int(st.Gid), time.Unix(st.Mtim.Sec, 0)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return l.subdirectory(dir, base, h, depth)
	case unix.S_IFREG:
		if !l.shows(&st) {
			h.Typeflag = tar.TypeFifo
			return l.tar.WriteHeader(h)
		}
		if first, ok := l.seen[st.Ino]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return l.tar.WriteHeader(h)
		}
		if st.Nlink > 1 {
			l.seen[st.Ino] = name
		}
		return l.file(dir, base, h, st)
	case unix.S_IFLNK:
		target, err := readlink(dir, base)
		if err != nil {
			return fmt.Errorf("read the link %.80q of an upper layer: %w", name, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return l.tar.WriteHeader(h)
	case unix.S_IFCHR:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
		return l.tar.WriteHeader(h)
	}
	return nil
}

// shows says whether the sandbox's user may read a file, or is its owner and so may say
// that it may.
func (l *layer) shows(st *unix.Stat_t) bool {
	return l.root || st.Uid == l.uid || st.Gid == l.gid && st.Mode&0o040 != 0 || st.Mode&0o004 != 0
}

func (l *layer) subdirectory(dir int, base string, h *tar.Header, depth int) error {
	fd, err := open(dir, base, unix.O_DIRECTORY, uint32(h.Mode), 0o500)
	if err != nil {
		return fmt.Errorf("open the directory %.80q of an upper layer: %w", h.Name, err)
	}
	defer unix.Close(fd)
	h.Typeflag = tar.TypeDir
	for _, name := range []string{"opaque", "redirect"} {
		mark := string(l.marks) + ".overlay." + name
		value, err := attribute(fd, mark)
		if err != nil {
			return fmt.Errorf("read %s of %.80q in an upper layer: %w", mark, h.Name, err)
		}
		if value != "" {
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords["SCHILY.xattr."+mark] = value
		}
	}
	name := h.Name
	h.Name += "/"
	if err := l.tar.WriteHeader(h); err != nil {
		return err
	}
	return l.directory(fd, name, depth+1)
}

func (l *layer) file(dir int, base string, h *tar.Header, st unix.Stat_t) error {
	fd, err := open(dir, base, unix.O_NONBLOCK, uint32(h.Mode), 0o400)
	if err != nil {
		return fmt.Errorf("open %.80q of an upper layer: %w", h.Name, err)
	}
	f := os.NewFile(uintptr(fd), h.Name)
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := l.tar.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(l.tar, &reader{l.ctx, f}, st.Size); err != nil {
		return fmt.Errorf("read %.80q of an upper layer: %w", h.Name, err)
	}
	return nil
}

// reader ends with a context.
type reader struct {
	ctx context.Context
	f   *os.File
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.f.Read(p)
}

// open opens what lies in a directory, for reading. Its owner may have taken the right
// to read it away, also from a caisson that is no root but the same user: it is given
// back for as long as opening takes.
func open(dir int, base string, flags int, mode, needed uint32) (int, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, base, flags, 0)
	if !errors.Is(err, unix.EACCES) || mode&needed == needed {
		return fd, err
	}
	if err := unix.Fchmodat(dir, base, mode|needed, 0); err != nil {
		return -1, err
	}
	fd, err = unix.Openat(dir, base, flags, 0)
	return fd, errors.Join(err, unix.Fchmodat(dir, base, mode, 0))
}

// attribute reads an extended attribute; "" when there is none.
func attribute(fd int, name string) (string, error) {
	value := make([]byte, 4096)
	n, err := unix.Fgetxattr(fd, name, value)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EPERM):
		return "", nil // trusted.* shows to the host's root alone, who alone mounts with it
	case err != nil:
		return "", err
	}
	return strings.TrimRight(string(value[:n]), "\x00"), nil
}

func readlink(dir int, base string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, base, target)
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}
