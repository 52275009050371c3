// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// A template that starts from the host has a copy of what sandboxes see of it: its
// programs and the harmless part of its /etc, as [Host] has them, and besides what a
// package manager has to know of them. It is copied once, and anew when packages have
// changed. Files that not everybody may read are left out.

// packageDirs are where package managers keep what is installed, and from where to get
// more.
var packageDirs = []string{
	"var/lib/dpkg", "var/lib/apt/extended_states", "etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/trusted.gpg.d", "etc/apt/keyrings",
	"etc/debconf.conf", "etc/adduser.conf", "etc/login.defs", "etc/skel", "etc/shells",
	"var/lib/rpm", "var/lib/pacman/local", "lib/apk/db",
}

// PutHost puts the host's toolchain into the tree.
func (b *Builder) PutHost(ctx context.Context) error {
	r, w := io.Pipe()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		t := tar.NewWriter(w)
		err := writeHost(ctx, t)
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	err := b.Put(ctx, r)
	r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // ends the writer
	<-wrote
	return err
}

// HostDigest changes when packages of the host were installed or removed, by the times of
// the directories that have them.
func HostDigest() (string, error) {
	sum := sha256.New()
	h, err := surveyHost("/", sum, "")
	if err != nil {
		return "", err
	}
	h.close()
	for _, p := range []string{"usr", "usr/bin", "usr/sbin", "usr/lib", "usr/local/bin", "usr/local/lib", "var/lib/dpkg/status", "var/lib/rpm", "lib/apk/db"} {
		var st unix.Stat_t
		if unix.Stat("/"+p, &st) == nil {
			fmt.Fprintf(sum, "%s %v\n", p, identity(&st))
		}
	}
	return fstree.Digest(sum), nil
}

// writeHost writes the host's files as an archive.
func writeHost(ctx context.Context, t *tar.Writer) error {
	h, err := surveyHost("/", sha256.New(), "")
	if err != nil {
		return err
	}
	defer h.close()
	w := &hostWriter{ctx: ctx, host: h.root, tar: t, seen: map[[2]uint64]string{}}
	for name, to := range h.links {
		if err := t.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777, Format: tar.FormatPAX}); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot("/")
	if err != nil {
		return hostError("open /", err)
	}
	defer root.Close()
	w.root = root
	for _, b := range h.binds {
		if err := w.tree(strings.TrimPrefix(b.Target, "/"), 0); err != nil {
			return err
		}
	}
	if err := h.complete(); err != nil {
		return err
	}
	for _, f := range h.etc {
		if err := w.one(strings.TrimPrefix(f.path, "/")); err != nil {
			return err
		}
	}
	for _, p := range packageDirs {
		if err := w.tree(p, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// hostWriter writes files of the host.
type hostWriter struct {
	ctx  context.Context
	host int // its root directory
	root *os.Root
	tar  *tar.Writer
	seen map[[2]uint64]string // files of several names
}

// tree writes a directory with all that it holds.
func (w *hostWriter) tree(name string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return context.Cause(w.ctx)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(w.host, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := w.one(name); err != nil || kindOf(&st) != kindDir || depth > 100 {
		return err
	}
	f, err := w.root.Open(name)
	if err != nil {
		return skipUnreadable(err)
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return hostError("read /"+name, err)
	}
	slices.Sort(names)
	for _, n := range names {
		if err := w.tree(path.Join(name, n), depth+1); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// skipUnreadable forgives what was removed meanwhile, or is not for everybody.
func skipUnreadable(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// one writes one name.
func (w *hostWriter) one(name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(w.host, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return skipUnreadable(err)
	}
	kind := kindOf(&st)
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o004 != 0 {
		kind = kindFile // of any size
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o777), ModTime: time.Unix(st.Mtim.Sec, 0), Format: tar.FormatPAX}
	switch kind {
	case kindDir:
		h.Typeflag = tar.TypeDir
		return w.tar.WriteHeader(h)
	case kindLink:
		h.Typeflag = tar.TypeSymlink
		var err error
		if h.Linkname, err = w.root.Readlink(name); err != nil {
			return skipUnreadable(err)
		}
		return w.tar.WriteHeader(h)
	case kindFile:
		return w.file(h, &st)
	}
	return nil
}

// passwords are what a line that says where packages come from may hold.
var passwords = regexp.MustCompile(`://[^/\s]*@`)

// file writes a regular file.
func (w *hostWriter) file(h *tar.Header, st *unix.Stat_t) error {
	id := [2]uint64{st.Dev, st.Ino}
	if first, ok := w.seen[id]; ok {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return w.tar.WriteHeader(h)
	}
	f, err := w.root.OpenFile(h.Name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return skipUnreadable(err)
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	var from io.Reader = f
	if strings.HasPrefix(h.Name, "etc/apt/") {
		text, err := io.ReadAll(io.LimitReader(f, maxFile))
		if err != nil || passwords.Match(text) {
			return err // who has a password there says where packages come from in a step
		}
		h.Size, from = int64(len(text)), bytes.NewReader(text)
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if st.Nlink > 1 {
		w.seen[id] = h.Name
	}
	if _, err := io.CopyN(w.tar, from, h.Size); err != nil {
		return &sandbox.Error{Op: "copy the host's toolchain", Kind: sandbox.ErrUnavailable, Problem: "/" + h.Name + " was changed meanwhile", Hint: "try again", Cause: err}
	}
	return nil
}
