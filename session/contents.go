// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/sandbox"
)

// Bounds of the contents that an approval covers.
const (
	mostContents = 256       // files
	mostContent  = 256 << 20 // bytes of one
)

// contents finds what a command line says by name: the programs that it starts,
// and the files among its arguments. read gives a file inside by its absolute
// path: fs.ErrNotExist where there is no regular file.
//
// What a program opens by itself is not among them.
func (r *run) contents(argv []string, dir string, search []string, read func(name string) (approval.File, error)) ([]approval.File, error) {
	var out []approval.File
	seen := map[string]bool{}
	add := func(name, at string) (found bool, err error) {
		if at = path.Clean(at); seen[at] {
			return true, nil
		}
		f, err := read(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, &sandbox.Error{Op: "approval", Kind: sandbox.ErrDenied, Problem: fmt.Sprintf("%s cannot be looked at: %v", quoted(name), err),
				Hint: "see whether it can be read", Rule: "built-in: approvals"}
		case len(out) == mostContents:
			return false, &sandbox.Error{Op: "approval", Kind: sandbox.ErrDenied, Problem: fmt.Sprintf("it names more than %d files", mostContents),
				Hint: "name a directory", Rule: "built-in: approvals"}
		}
		seen[at], f.Path = true, name
		out = append(out, f)
		return true, nil
	}
	for _, c := range r.starts(argv) {
		for i, word := range c {
			var err error
			switch {
			case i > 0 || strings.Contains(word, "/"):
				_, err = add(word, absoluteIn(dir, word))
				if _, value, ok := strings.Cut(word, "="); ok && err == nil {
					_, err = add(value, absoluteIn(dir, value))
				}
			default:
				for _, bin := range search {
					found, ferr := add(word, path.Join(bin, word))
					if err = ferr; found || err != nil {
						break
					}
				}
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func absoluteIn(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}

// starts are the words that are known of every command that argv, or a shell's
// source, would start.
func (r *run) starts(argv []string) [][]string {
	scripts := []*shell.Script{shell.Argv(argv)}
	out := [][]string{argv}
	if r.call.Script != "" {
		d := shell.POSIX
		if r.call.Call.Language == "bash" {
			d = shell.Bash
		}
		scripts = append(scripts, shell.Line(r.call.Script, d))
	}
	for _, s := range scripts {
		for _, c := range s.Commands {
			var words []string
			for _, w := range c.Words {
				if w.Static {
					words = append(words, w.Text)
				}
			}
			out = append(out, words)
		}
		for _, f := range s.Files {
			if f.Path.Static {
				out = append(out, []string{"", f.Path.Text})
			}
		}
	}
	return slices.DeleteFunc(out, func(words []string) bool { return len(words) == 0 })
}

// contents of a sandbox that is not made yet: what its mounts will show.
type contents struct {
	spec  *sandbox.Spec
	image string // the digest of a root that is one file; what is in it needs no other
}

// mostLinks is how many links one path may lead through, as the kernel has it.
const mostLinks = 40

// read finds name as a program inside would, and says what is in it.
func (c *contents) read(name string) (approval.File, error) {
	real, f, err := c.find(name)
	if err != nil {
		return approval.File{}, err
	}
	if f == nil { // it is in the image
		return approval.File{Real: real, Digest: c.image}, nil
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return approval.File{}, err
	case !info.Mode().IsRegular():
		return approval.File{}, fs.ErrNotExist
	}
	file, err := contentOf(f, real, real)
	if errors.Is(err, fs.ErrPermission) {
		return approval.File{Real: real, Digest: fmt.Sprintf("may not be read: %s of %s", objectOf(info), info.ModTime()), Size: info.Size()}, nil
	}
	return file, err
}

// find finds name as a program inside would: its path without links, and the file
// or directory, opened without reading; nil where a root that is one file has it.
func (c *contents) find(name string) (string, *os.File, error) {
	at, rest := "/", strings.Split(strings.Trim(name, "/"), "/")
	for links := 0; ; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		f, err := c.open(next)
		if errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) {
			err = fs.ErrNotExist // no program opens it either
		}
		if err != nil {
			return "", nil, err
		}
		if f == nil {
			return path.Join(append([]string{next}, rest...)...), nil, nil
		}
		info, err := f.Stat()
		switch {
		case err != nil:
		case info.Mode().Type() == fs.ModeSymlink:
			var to string
			if to, err = readLink(f); err == nil {
				if links++; links > mostLinks {
					err = errors.New("too many links")
				}
				rest = append(strings.Split(strings.Trim(path.Join("/", absoluteIn(at, to)), "/"), "/"), rest...)
				at = "/"
			}
		case len(rest) == 0:
			return next, f, nil
		case info.IsDir():
			at = next
		default:
			err = fs.ErrNotExist
		}
		f.Close()
		if err != nil {
			return "", nil, err
		}
	}
}

// open opens what will be at a path without links in it; nil is what an image
// that is one file has there.
func (c *contents) open(name string) (*os.File, error) {
	var best *sandbox.Mount
	for _, list := range [][]sandbox.Mount{c.spec.Root.Binds, c.spec.Mounts} {
		for i := range list {
			if m := &list[i]; below(m.Target, name) && (best == nil || len(m.Target) >= len(best.Target)) {
				best = m
			}
		}
	}
	for _, s := range c.spec.Scratch {
		if below(s.Target, name) && (best == nil || len(s.Target) > len(best.Target)) && name != s.Target {
			return nil, fs.ErrNotExist // it is empty when the program begins
		}
	}
	switch {
	case best != nil && best.Target == name && !best.Dir:
		return readAgain(best.Source)
	case best != nil && best.Target == name:
		return openBelow(best.Source, ".")
	case best != nil:
		return openBelow(best.Source, strings.TrimPrefix(strings.TrimPrefix(name, best.Target), "/"))
	case c.spec.Root.Dir != nil:
		return openBelow(c.spec.Root.Dir, strings.TrimPrefix(name, "/"))
	}
	return nil, nil
}

// contentOf digests a regular file that was opened without reading.
func contentOf(f *os.File, name, real string) (approval.File, error) {
	in, err := readAgain(f)
	if err != nil {
		return approval.File{}, err
	}
	defer in.Close()
	return digestOf(name, real, in)
}

func digestOf(name, real string, in io.Reader) (approval.File, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(in, mostContent+1))
	if err == nil && n > mostContent {
		err = fmt.Errorf("it is larger than %d MiB", mostContent>>20)
	}
	return approval.File{Path: name, Real: real, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: n}, err
}

// contentsOf reads in a sandbox that lives on, with the rights of its user. What
// its agent says is as good as the sandbox: whoever is in it may change a file
// behind the approver's back.
func contentsOf(ctx context.Context, agent *guest.Client) func(string) (approval.File, error) {
	return func(name string) (approval.File, error) {
		e, err := agent.Stat(ctx, name)
		if errors.Is(err, sandbox.ErrNotFound) || err == nil && e.Kind != guest.RegularFile {
			return approval.File{}, fs.ErrNotExist
		}
		if err != nil {
			return approval.File{}, err
		}
		sum := sha256.New()
		n, err := agent.ReadFile(ctx, name, sum, mostContent)
		if errors.Is(err, sandbox.ErrDenied) { // the program's user may not read it either
			return approval.File{Real: e.Path, Digest: "may not be read", Size: e.Size}, nil
		}
		real := e.Path
		if e.Target != "" {
			real = e.Target
		}
		return approval.File{Real: real, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: n}, err
	}
}
