// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/internal/envd"
)

// maxEntries bounds a listing: a directory inside may hold millions.
const maxEntries = 20_000

func (a *Agent) serveStat(r *http.Request, q *envd.PathRequest) (*envd.EntryAnswer, error) {
	var e *envd.Entry
	err := a.withPath(r, cmp.Or(q.Path, "~"), func(p string) (err error) {
		e, err = a.entry(p)
		if errors.Is(err, fs.ErrNotExist) {
			err = &connectError{codeNotFound, "file not found: " + err.Error()}
		}
		return err
	})
	return &envd.EntryAnswer{Entry: e}, err
}

func (a *Agent) serveMakeDir(r *http.Request, q *envd.PathRequest) (*envd.EntryAnswer, error) {
	var e *envd.Entry
	err := a.withPath(r, q.Path, func(p string) (err error) {
		if i, err := os.Stat(p); err == nil {
			if i.IsDir() {
				return &connectError{codeExists, "directory already exists: " + p}
			}
			return &connectError{codeInvalid, "path already exists but it is not a directory: " + p}
		}
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		e, err = a.entry(p)
		return err
	})
	return &envd.EntryAnswer{Entry: e}, err
}

func (a *Agent) serveRemove(r *http.Request, q *envd.PathRequest) (*struct{}, error) {
	return &struct{}{}, a.withPath(r, q.Path, os.RemoveAll)
}

func (a *Agent) serveMove(r *http.Request, q *envd.MoveRequest) (*envd.EntryAnswer, error) {
	var e *envd.Entry
	err := a.withPath(r, q.Source, func(from string) error {
		u, err := a.user(r)
		if err != nil {
			return err
		}
		to, err := u.path(q.Destination)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			return &connectError{codeNotFound, "source file not found: " + err.Error()}
		} else if err != nil {
			return err
		}
		if err := os.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
		e, err = a.entry(to)
		return err
	})
	return &envd.EntryAnswer{Entry: e}, err
}

func (a *Agent) serveListDir(r *http.Request, q *envd.ListRequest) (*envd.ListAnswer, error) {
	l := &envd.ListAnswer{Entries: []*envd.Entry{}}
	depth := int(max(q.Depth, 1))
	err := a.withPath(r, cmp.Or(q.Path, "~"), func(root string) error {
		i, err := os.Stat(root)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &connectError{codeNotFound, "path not found: " + err.Error()}
		case errors.Is(err, syscall.ELOOP):
			return &connectError{codePrecondition, fmt.Sprintf("cyclic symlink or chain >255 links at %q", root)}
		case err != nil:
			return err
		case !i.IsDir():
			return &connectError{codeInvalid, "path is not a directory: " + root}
		}
		known := newNames()
		below := strings.TrimSuffix(root, "/") + "/"
		// WalkDir does not enter a root that is a link; envd does.
		return filepath.WalkDir(below, func(p string, d fs.DirEntry, err error) error {
			if p == below {
				return err
			}
			if err != nil {
				return nil // a directory that the user cannot read is listed, not entered
			}
			if len(l.Entries) >= maxEntries {
				return &connectError{codeExhausted, fmt.Sprintf("the listing has more than %d entries", maxEntries)}
			}
			p = path.Clean(p)
			if e, err := describe(p, known); err == nil { // it may be gone
				l.Entries = append(l.Entries, e)
			}
			if d.IsDir() && strings.Count(strings.TrimPrefix(p, below), "/")+1 >= depth {
				return fs.SkipDir
			}
			return nil
		})
	})
	return l, err
}

// withPath calls f with the path that a request names and its user's rights.
func (a *Agent) withPath(r *http.Request, name string, f func(string) error) error {
	u, err := a.user(r)
	if err != nil {
		return err
	}
	p, err := u.path(name)
	if err != nil {
		return err
	}
	return u.as(func() error { return f(p) })
}

// entry describes a path.
func (a *Agent) entry(p string) (*envd.Entry, error) { return describe(p, newNames()) }

// describe describes a path, as envd does: size and permissions are a link's
// own, type and mode those of what it leads to.
func describe(p string, known *names) (*envd.Entry, error) {
	i, err := os.Lstat(p)
	if err != nil {
		return nil, err
	}
	e := &envd.Entry{
		Name: path.Base(p), Path: p, Type: fileType(i.Mode()), Size: i.Size(),
		Mode: uint32(i.Mode().Perm()), Permissions: i.Mode().String(),
		ModifiedTime: i.ModTime().UTC().Format(time.RFC3339Nano),
		Metadata:     attributesOf(p).metadata(),
	}
	if s, ok := i.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = known.user(s.Uid), known.group(s.Gid)
	}
	if i.Mode()&fs.ModeSymlink != 0 {
		e.SymlinkTarget, e.Type, e.Mode = p, envd.TypeOther, 0
		if to, err := filepath.EvalSymlinks(p); err == nil {
			e.SymlinkTarget = to
		}
		if to, err := os.Stat(p); err == nil {
			e.Type, e.Mode = fileType(to.Mode()), uint32(to.Mode().Perm())
		}
	}
	return e, nil
}

func fileType(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return envd.TypeFile
	case m.IsDir():
		return envd.TypeDirectory
	}
	return envd.TypeOther
}

// errNotRegular is what device files, sockets and pipes get: opening them does
// things, and reading them may never end.
var errNotRegular = errors.New("it is not a regular file")

// openRegular opens a file that is one, and is still one when it is open.
func openRegular(p string, flags int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(p, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, mode)
	if errors.Is(err, syscall.ENXIO) { // a pipe without a reader, or a socket
		return nil, &connectError{codeInvalid, p + ": " + errNotRegular.Error()}
	}
	if err != nil {
		return nil, err
	}
	i, err := f.Stat()
	if err == nil && !i.Mode().IsRegular() {
		err = &connectError{codeInvalid, p + ": " + errNotRegular.Error()}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
