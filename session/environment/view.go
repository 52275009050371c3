// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// View finds what a sandbox that is not made yet will show, as a program inside would:
// through mounts and links.
type View struct {
	spec *sandbox.Spec
	// within looks into a root that is one file; nil is not to.
	within map[string]*fstree.Node
}

// View shows the environment's files. What is in a root that is one file is not looked at.
func (e *Environment) View() *View { return &View{spec: e.Spec} }

// maxLinks is how many links one path may lead through, as the kernel has it.
const maxLinks = 40

// File is what a path inside leads to. The caller must call Close.
type File struct {
	// Handle is the file or directory, opened without reading; nil for what is in a root
	// that is one file.
	Handle *os.File

	node *fstree.Node // of such a root; nil where that is not looked into
}

// Close closes the handle.
func (e File) Close() {
	if e.Handle != nil {
		e.Handle.Close()
	}
}

// kind is its type, and where it leads when it is a link.
func (e File) kind() (mode fs.FileMode, to string, err error) {
	if e.node != nil {
		return map[fstree.Kind]fs.FileMode{fstree.Dir: fs.ModeDir, fstree.Link: fs.ModeSymlink}[e.node.Kind], e.node.Target, nil
	}
	info, err := e.Handle.Stat()
	if err != nil {
		return 0, "", err
	}
	if mode = info.Mode().Type(); mode == fs.ModeSymlink {
		to, err = readLink(e.Handle)
	}
	return mode, to, err
}

// Find finds name, which is absolute, as a program inside would: its path without links,
// and what is there. fs.ErrNotExist says that nothing is.
func (v *View) Find(name string) (string, File, error) {
	at, rest := "/", strings.Split(strings.Trim(name, "/"), "/")
	for links := 0; ; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		e, err := v.open(next)
		if errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) {
			err = fs.ErrNotExist // no program opens it either
		}
		if err != nil {
			return "", File{}, err
		}
		if e == (File{}) {
			return path.Join(append([]string{next}, rest...)...), e, nil
		}
		mode, to, err := e.kind()
		switch {
		case err != nil:
		case mode == fs.ModeSymlink:
			if links++; links > maxLinks {
				err = errors.New("too many links")
			}
			rest = append(strings.Split(strings.Trim(path.Join("/", absolute(at, to)), "/"), "/"), rest...)
			at = "/"
		case len(rest) == 0:
			return next, e, nil
		case mode.IsDir():
			at = next
		default:
			err = fs.ErrNotExist
		}
		e.Close()
		if err != nil {
			return "", File{}, err
		}
	}
}

// owner is the mount that has what will be at a path; nil is the root itself. empty
// says that nothing will be there when the program begins.
func (v *View) owner(name string) (best *sandbox.Mount, empty bool) {
	for _, list := range [][]sandbox.Mount{v.spec.Root.Binds, v.spec.Mounts} {
		for i := range list {
			if m := &list[i]; sandbox.Within(name, m.Target) && (best == nil || len(m.Target) >= len(best.Target)) {
				best = m
			}
		}
	}
	for _, s := range v.spec.Scratch {
		if sandbox.Within(name, s.Target) && (best == nil || len(s.Target) > len(best.Target)) && name != s.Target {
			return best, true
		}
	}
	return best, false
}

// open opens what will be at a path without links in it.
func (v *View) open(name string) (File, error) {
	best, empty := v.owner(name)
	if empty {
		return File{}, fs.ErrNotExist
	}
	var f *os.File
	var err error
	switch {
	case best != nil && best.Target == name && !best.Dir:
		f, err = Reopen(best.Source)
	case best != nil && best.Target == name:
		f, err = openBelow(best.Source, ".")
	case best != nil:
		f, err = openBelow(best.Source, strings.TrimPrefix(strings.TrimPrefix(name, best.Target), "/"))
	case v.spec.Root.Dir != nil:
		f, err = openBelow(v.spec.Root.Dir, strings.TrimPrefix(name, "/"))
	case v.within != nil:
		return v.inImage(name)
	}
	return File{Handle: f}, err
}

// inImage looks into a root that is one file.
func (v *View) inImage(name string) (File, error) {
	node, ok := v.within[name]
	if !ok {
		file := v.spec.Root.Image.EROFS
		info, err := file.Stat()
		if err == nil {
			node, err = fstree.FindEROFS(file, info.Size(), name)
		}
		if err != nil && !errors.Is(err, fstree.ErrNotFound) {
			return File{}, err
		}
		v.within[name] = node
	}
	if node == nil {
		return File{}, fs.ErrNotExist
	}
	return File{node: node}, nil
}

// absolute is a path that a program in dir names.
func absolute(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}
