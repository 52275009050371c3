// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/template"
)

// copy carries COPY out.
func (w *work) copy(ctx context.Context, at *point, s *template.Step) error {
	tree := at.tree
	owner, err := tree.Account(s.Copy.Chown)
	if err != nil {
		return err
	}
	if s.Copy.From >= 0 {
		info, err := w.earlier(ctx, s.Copy.From)
		if err != nil {
			return err
		}
		at.history = digestOf(at.history, info.Digest)
	}
	from, err := w.open(ctx, s.Copy)
	if err != nil {
		return err
	}
	defer from.Close()
	found, err := selected(from, s.Copy)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = put(ctx, tree, func(t *tar.Writer) error {
		c := &copying{ctx: ctx, tar: t, tree: tree.Tree(), from: from, owner: owner, step: s, mode: -1, sum: sum}
		if s.Copy.Chmod != "" {
			mode, err := strconv.ParseUint(s.Copy.Chmod, 8, 12)
			if err != nil {
				return fail(sandbox.ErrInvalid, s.Copy.Chmod+" is no mode", "write it in octal: --chmod=755")
			}
			c.mode = int64(mode)
		}
		return c.all(found)
	})
	// What comes of later steps is kept by what was there when the build began.
	if want := w.copies[s.Copy]; err == nil && s.Copy.From < 0 && s.Copy.FromImage == "" && want != hex.EncodeToString(sum.Sum(nil)) {
		return fail(sandbox.ErrUnavailable, "files were changed while they were copied", "build again when they rest")
	}
	return err
}

// put has write write an archive, and puts that into the tree.
func put(ctx context.Context, tree *image.Builder, write func(*tar.Writer) error) error {
	r, p := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		t := tar.NewWriter(p)
		err := write(t)
		if err == nil {
			err = t.Close()
		}
		p.CloseWithError(err)
		wrote <- err
	}()
	err := tree.Add(ctx, r)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	r.CloseWithError(err) // ends the writer
	if werr := <-wrote; werr != nil {
		return werr
	}
	return err
}

// copying is one COPY into a tree.
type copying struct {
	ctx   context.Context
	tar   *tar.Writer
	sum   hash.Hash    // of what is copied; see digestEntry
	tree  *fstree.Node // before it
	from  source
	owner sandbox.User
	mode  int64 // -1 is that of the source
	step  *template.Step
}

// all copies what was found and what the definition holds itself.
func (c *copying) all(found []entry) error {
	s := c.step.Copy
	target := s.Target
	if !path.IsAbs(target) {
		target = path.Join("/", c.step.Dir, target) + map[bool]string{true: "/"}[strings.HasSuffix(target, "/")]
	}
	several := len(found)+len(s.Inline) > 1 || len(found) == 1 && found[0].Dir
	into := several || strings.HasSuffix(target, "/") || c.isDir(target)
	if several && !strings.HasSuffix(target, "/") && !c.isDir(target) && len(s.Sources)+len(s.Inline) > 1 {
		return fail(sandbox.ErrInvalid, "several sources need a directory as the target", "end it with a slash: "+target+"/")
	}
	target = path.Clean(target)
	if into {
		if err := c.makeTarget(target); err != nil {
			return err
		}
	}
	for _, e := range found {
		at := target
		if into && !e.Dir {
			at = path.Join(target, e.As)
		}
		if err := c.entry(e, at, e.Dir); err != nil {
			return err
		}
	}
	for _, f := range s.Inline {
		at := target
		if into {
			at = path.Join(target, f.Name)
		}
		h := c.of(entry{Mode: 0o644}, at, tar.TypeReg)
		h.Size = int64(len(f.Data))
		if err := c.tar.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.WriteString(c.tar, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// isDir says whether the tree has a directory at p.
func (c *copying) isDir(p string) bool {
	_, err := c.tree.Walk(strings.Split(p, "/"), nil)
	return err == nil
}

// makeTarget makes the directory that files are copied into, where it is not there.
func (c *copying) makeTarget(target string) error {
	if c.isDir(target) {
		return nil
	}
	return c.tar.WriteHeader(c.header(target, tar.TypeDir, 0o755))
}

// entry copies one source; of a directory that is named, what is in it.
func (c *copying) entry(e entry, at string, named bool) error {
	if err := c.ctx.Err(); err != nil {
		return context.Cause(c.ctx)
	}
	mark(c.sum, e)
	switch {
	case e.Dir:
		if !named {
			if err := c.tar.WriteHeader(c.of(e, at, tar.TypeDir)); err != nil {
				return err
			}
		}
		list, err := c.from.List(e.Name)
		if err != nil {
			return err
		}
		for _, in := range list {
			if err := c.entry(in, path.Join(at, path.Base(in.Name)), false); err != nil {
				return err
			}
		}
		markEnd(c.sum)
		return nil
	case e.Link != "":
		h := c.of(e, at, tar.TypeSymlink)
		h.Linkname = e.Link
		return c.tar.WriteHeader(h)
	}
	f, size, err := c.from.Open(e.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	if c.step.Copy.Extract {
		if done, err := c.extract(f, at); done || err != nil {
			return err
		}
	}
	markSize(c.sum, size)
	h := c.of(e, at, tar.TypeReg)
	h.Size = size
	if err := c.tar.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.Copy(io.MultiWriter(c.tar, c.sum), io.LimitReader(f, size)); err != nil || n != size {
		return fmt.Errorf("%s was changed while it was read: %w", sandbox.Quoted(e.Name), errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

// of is the header of an entry: --chmod and --chown say what the source does not. As
// docker has it, --chmod is for directories too.
func (c *copying) of(e entry, at string, kind byte) *tar.Header {
	h := c.header(at, kind, e.Mode)
	if c.mode >= 0 && kind != tar.TypeSymlink {
		h.Mode = c.mode
	}
	if c.step.Copy.Chown == "" {
		h.Uid, h.Gid = int(e.UID), int(e.GID) // root where they are the host's
	}
	return h
}

// made is when files were made: at no time, so that the same files make the same template,
// but late enough for zip archives, which begin in 1980.
var made = time.Unix(1<<29, 0)

// header is that of a new file.
func (c *copying) header(at string, kind byte, mode int64) *tar.Header {
	return &tar.Header{Name: strings.TrimPrefix(at, "/"), Typeflag: kind, Mode: mode, Uid: c.owner.UID, Gid: c.owner.GID, ModTime: made, Format: tar.FormatPAX}
}

// extract unpacks a tar archive, as ADD does; false for any other file.
func (c *copying) extract(f io.Reader, at string) (bool, error) {
	return false, fail(sandbox.ErrUnsupported, "ADD of an archive is not carried", "unpack it first, or COPY it and RUN tar")
}

// makeDir makes the directory of WORKDIR, with those above it, for the step's user.
func (w *work) makeDir(ctx context.Context, tree *image.Builder, s *template.Step) error {
	owner, err := tree.Account(s.User)
	if err != nil {
		return err
	}
	return put(ctx, tree, func(t *tar.Writer) error {
		c := &copying{tar: t, tree: tree.Tree(), owner: owner, step: s}
		var missing []string
		for p := path.Clean(s.MakeDir); p != "/" && !c.isDir(p); p = path.Dir(p) {
			missing = append([]string{p}, missing...)
		}
		for _, p := range missing {
			if err := t.WriteHeader(c.header(p, tar.TypeDir, 0o755)); err != nil {
				return err
			}
		}
		return nil
	})
}
