// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
)

const (
	// maxDepth is how many directories lie in one another at most.
	maxDepth = 256
	// opaque is the attribute of a directory that hides the one below it.
	opaque = "trusted.overlay.opaque"
)

// layer is what was written to one copy-on-write mount: the upper layer of an overlay,
// which is a tmpfs of the kernel's own.
//
// gVisor has a writer of such a tmpfs as tar (vfs.TarSerializer), for the root file
// system. It takes a whole file into the kernel's heap, which a memory limit counts, in no
// order, and with attributes that code may have set.
type layer struct {
	vfs    *vfs.VirtualFilesystem
	creds  *auth.Credentials
	mount  vfs.VirtualDentry // its root, as it shows inside
	upper  vfs.VirtualDentry
	mounts bool // something may be mounted in it
}

// upperOf is the upper layer of an overlay. Its own reference keeps it.
func upperOf(fs vfs.FilesystemImpl) (vfs.VirtualDentry, bool) {
	v := reflect.ValueOf(fs)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return vfs.VirtualDentry{}, false
	}
	f := v.Elem().FieldByName("opts")
	if !f.IsValid() || f.Type() != reflect.TypeFor[overlay.FilesystemOptions]() {
		return vfs.VirtualDentry{}, false
	}
	upper := (*overlay.FilesystemOptions)(unsafe.Pointer(f.UnsafeAddr())).UpperRoot
	return upper, upper.Ok()
}

// writeTar writes the layer to w as sandbox.ChangeReader says. Nothing inside runs
// meanwhile. Pipes and sockets are left out.
func (l *layer) writeTar(ctx context.Context, w io.Writer) error {
	buffered := bufio.NewWriterSize(w, 256<<10)
	t := &tarWriter{layer: l, ctx: ctx, tar: tar.NewWriter(buffered), seen: map[uint64]string{}}
	if err := t.directory("", 0); err != nil {
		return err
	}
	return errors.Join(t.tar.Close(), buffered.Flush())
}

// tarWriter is one reading of a layer.
type tarWriter struct {
	*layer
	ctx  context.Context
	tar  *tar.Writer
	seen map[uint64]string // files of several names, by inode
	data []byte
}

// in is the place of a name in a tree.
func in(root vfs.VirtualDentry, name string) *vfs.PathOperation {
	return &vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(name)}
}

// directory writes what lies in a directory.
func (t *tarWriter) directory(name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%.80q lies more than %d directories deep", name, maxDepth)
	}
	names, err := t.list(name)
	if err != nil {
		return fmt.Errorf("read %.80q: %w", name, err)
	}
	for _, n := range names {
		if err := t.entry(path.Join(name, n), depth); err != nil {
			return err
		}
	}
	return nil
}

// list reads the names in a directory, sorted.
func (t *tarWriter) list(name string) (names []string, err error) {
	fd, err := t.vfs.OpenAt(t.ctx, t.creds, in(t.upper, name), &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_DIRECTORY})
	if err != nil {
		return nil, err
	}
	defer fd.DecRef(t.ctx)
	err = fd.IterDirents(t.ctx, vfs.IterDirentsCallbackFunc(func(d vfs.Dirent) error {
		if d.Name != "." && d.Name != ".." {
			names = append(names, d.Name)
		}
		return nil
	}))
	slices.Sort(names)
	return names, err
}

// entry writes one name.
func (t *tarWriter) entry(name string, depth int) error {
	const mask = linux.STATX_TYPE | linux.STATX_MODE | linux.STATX_NLINK | linux.STATX_INO | linux.STATX_SIZE | linux.STATX_UID | linux.STATX_GID | linux.STATX_MTIME
	st, err := t.vfs.StatAt(t.ctx, t.creds, in(t.upper, name), &vfs.StatOptions{Mask: mask})
	if err != nil {
		return fmt.Errorf("look at %.80q: %w", name, err)
	}
	if t.mountedOver(name) {
		return nil // no code wrote it, but the copy of a directory that was renamed
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.UID), Gid: int(st.GID), ModTime: time.Unix(st.Mtime.Sec, 0), Format: tar.FormatPAX}
	switch st.Mode & linux.S_IFMT {
	case linux.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if v, err := t.vfs.GetXattrAt(t.ctx, t.creds, in(t.upper, name), &vfs.GetXattrOptions{Name: opaque}); err == nil && v == "y" {
			h.PAXRecords = map[string]string{"SCHILY.xattr." + opaque: v}
		}
		if err := t.tar.WriteHeader(h); err != nil {
			return err
		}
		return t.directory(name, depth+1)
	case linux.S_IFREG:
		if first, ok := t.seen[st.Ino]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return t.tar.WriteHeader(h)
		}
		if st.Nlink > 1 {
			t.seen[st.Ino] = name
		}
		h.Typeflag, h.Size = tar.TypeReg, int64(st.Size)
		return t.file(h)
	case linux.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = t.vfs.ReadlinkAt(t.ctx, t.creds, in(t.upper, name)); err != nil {
			return fmt.Errorf("read the link %.80q: %w", name, err)
		}
		return t.tar.WriteHeader(h)
	case linux.S_IFCHR:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, int64(st.RdevMajor), int64(st.RdevMinor)
		return t.tar.WriteHeader(h)
	}
	return nil
}

// mountedOver says that another mount hides a name of the layer.
func (t *tarWriter) mountedOver(name string) bool {
	if !t.mounts {
		return false
	}
	shown, err := t.vfs.GetDentryAt(t.ctx, t.creds, in(t.mount, name), &vfs.GetDentryOptions{})
	if err != nil {
		return false // it is a removal
	}
	defer shown.DecRef(t.ctx)
	return shown.Mount() != t.mount.Mount()
}

func (t *tarWriter) file(h *tar.Header) error {
	fd, err := t.vfs.OpenAt(t.ctx, t.creds, in(t.upper, h.Name), &vfs.OpenOptions{Flags: linux.O_RDONLY})
	if err != nil {
		return fmt.Errorf("open %.80q: %w", h.Name, err)
	}
	defer fd.DecRef(t.ctx)
	if err := t.tar.WriteHeader(h); err != nil {
		return err
	}
	if t.data == nil {
		t.data = make([]byte, 256<<10)
	}
	for left := h.Size; left > 0; {
		n, err := fd.Read(t.ctx, usermem.BytesIOSequence(t.data[:min(left, int64(len(t.data)))]), vfs.ReadOptions{})
		if n == 0 {
			return fmt.Errorf("read %.80q: %w", h.Name, errors.Join(err, io.ErrUnexpectedEOF))
		}
		if _, err := t.tar.Write(t.data[:n]); err != nil {
			return err
		}
		left -= n
	}
	return nil
}
