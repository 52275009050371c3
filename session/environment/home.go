// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// addHome has programs of a template find in their home what it has there. Root of the
// sandbox's own has the root file system itself, home and all.
func (e *Environment) addHome() error {
	home := sandbox.DefaultUser().Home
	if e.Image == nil || !e.Image.Built || e.Spec.Sudo || e.Spec.User.Home != home {
		return nil
	}
	if slices.ContainsFunc(e.Spec.Mounts, func(m sandbox.Mount) bool { return m.Target == home }) {
		return nil
	}
	if !e.o.Caps.CopyOnWrite {
		return &sandbox.Error{Op: "template", Kind: sandbox.ErrUnsupported, Problem: e.o.Plan.Isolation + " has no copy-on-write for its home on this host", Hint: "run it on another level"}
	}
	f, err := e.store.Home(e.Image)
	if err != nil {
		return err
	}
	e.o.Host.Undo.Close(f)
	if slices.ContainsFunc(e.Spec.Mounts, func(m sandbox.Mount) bool { return sandbox.Within(m.Target, home) }) {
		if f, err = e.homeWithPlaces(f.Name()); err != nil {
			return &sandbox.Error{Op: "template", Kind: sandbox.ErrUnavailable, Problem: "its home cannot be made ready for what is mounted there", Hint: "give the mount a target outside of " + home, Cause: err}
		}
		e.o.Host.Undo.Close(f)
	}
	m := sandbox.Mount{Source: f, Name: "the template's home", Target: home, Access: sandbox.CopyOnWrite, Dir: true}
	e.Spec.Mounts = slices.Insert(e.Spec.Mounts, 0, m) // others may lie in it
	return nil
}

// homeWithPlaces is a tree of links to the files of a home, in the run directory, with
// what mounts need to be mounted on. Nothing is written to the files: the mount is
// copy-on-write.
func (e *Environment) homeWithPlaces(home string) (*os.File, error) {
	to := filepath.Join(e.Spec.StateDir, "home")
	if err := linkTree(home, to); err != nil {
		return nil, err
	}
	for _, m := range e.Spec.Mounts {
		rel, ok := strings.CutPrefix(m.Target, sandbox.DefaultUser().Home+"/")
		if !ok {
			continue
		}
		if err := place(to, rel, m.Dir); err != nil {
			return nil, err
		}
	}
	return os.Open(to)
}

// place makes what a mount is mounted on, where nothing is. No link is followed.
func place(root, rel string, dir bool) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	if dir {
		return r.MkdirAll(rel, 0o755)
	}
	if above := path.Dir(rel); above != "." {
		if err := r.MkdirAll(above, 0o755); err != nil {
			return err
		}
	}
	f, err := r.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// linkTree makes directories like those of a tree of ours, with further names of its files.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			info, err := d.Info()
			if err != nil {
				return err
			}
			return errors.Join(os.Mkdir(at, 0o700), os.Chmod(at, info.Mode().Perm()))
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return os.Symlink(link, at)
		}
		return os.Link(p, at)
	})
}
