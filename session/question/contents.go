// SPDX-License-Identifier: Apache-2.0

package question

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

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// Bounds of the contents that an approval covers.
const (
	maxContents = 256       // files
	maxContent  = 256 << 20 // bytes of one
)

// Contents finds what a call's command line says by name: the programs that it starts,
// and the files among its arguments. read gives a file inside by its absolute
// path: fs.ErrNotExist where there is no regular file.
//
// What a program opens by itself is not among them.
func Contents(call *policy.Call, argv []string, dir string, search []string, read func(name string) (approval.File, error)) ([]approval.File, error) {
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
			return false, &sandbox.Error{Op: "approval", Kind: sandbox.ErrDenied, Problem: fmt.Sprintf("%s cannot be looked at: %v", sandbox.Quoted(name), err),
				Hint: "see whether it can be read", Rule: "built-in: approvals"}
		case len(out) == maxContents:
			return false, &sandbox.Error{Op: "approval", Kind: sandbox.ErrDenied, Problem: fmt.Sprintf("it names more than %d files", maxContents),
				Hint: "name a directory", Rule: "built-in: approvals"}
		}
		seen[at], f.Path = true, name
		out = append(out, f)
		return true, nil
	}
	dirs := []string{dir}
	for _, c := range Starts(call, argv) {
		if dirs = movedTo(dirs, c); len(dirs) > maxDirs {
			return nil, &sandbox.Error{Op: "approval", Kind: sandbox.ErrDenied, Problem: "it changes its directory too often for an approver to follow",
				Hint: "write absolute paths", Rule: "built-in: approvals"}
		}
		for i, word := range c {
			var err error
			switch {
			case word == "":
			case i > 0 || strings.Contains(word, "/"):
				for _, name := range namesIn(word) {
					for _, dir := range dirs {
						if _, err = add(name, absoluteIn(dir, name)); err != nil {
							return nil, err
						}
					}
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

// maxDirs is in how many directories the files of a line are looked for.
const maxDirs = 16

// movedTo adds to the directories that a line may be in those that a command of it
// changes to: as each of them, since no order and no branch is known.
func movedTo(dirs, words []string) []string {
	mover := words[0] == "cd" || words[0] == "pushd" || words[0] == "chdir"
	for i, word := range words[1:] {
		before := words[i] // words[i+1] is word
		to := ""
		switch {
		case before == "-C", before == "--chdir", before == "--directory", before == "-D", mover && word != "" && word[0] != '-':
			to = word
		case strings.HasPrefix(word, "-C"), strings.HasPrefix(word, "-D"):
			to = word[2:]
		case strings.HasPrefix(word, "--chdir="), strings.HasPrefix(word, "--directory="):
			_, to, _ = strings.Cut(word, "=")
		}
		if to == "" {
			continue
		}
		for _, dir := range slices.Clone(dirs) {
			if at := path.Clean(absoluteIn(dir, to)); !slices.Contains(dirs, at) && len(dirs) <= maxDirs {
				dirs = append(dirs, at)
			}
		}
	}
	return dirs
}

// namesIn are the files that a word may name: itself, the value of --config=x, of -fx,
// and of the @x that many programs read.
func namesIn(word string) []string {
	out := []string{word}
	if _, value, ok := strings.Cut(word, "="); ok {
		out = append(out, value)
	}
	if len(word) > 2 && word[0] == '-' && word[1] != '-' {
		out = append(out, word[2:])
	}
	for _, name := range slices.Clone(out) {
		if _, file, ok := strings.Cut(name, "@"); ok {
			out = append(out, file)
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" })
}

func absoluteIn(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}

// Starts are the words of every command that argv, or a shell's source, would start,
// empty where they are not known.
func Starts(call *policy.Call, argv []string) [][]string {
	out := [][]string{argv}
	for _, s := range scripts(call, argv) {
		for _, c := range s.Commands {
			var words []string
			for _, w := range c.Words {
				if !w.Static {
					w.Text = ""
				}
				words = append(words, w.Text)
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

// scripts are what a shell would read of argv, and of the source.
func scripts(call *policy.Call, argv []string) []*shell.Script {
	var scripts []*shell.Script
	if len(argv) > 0 {
		scripts = append(scripts, shell.Argv(argv))
	}
	if call.Script != "" {
		d := shell.POSIX
		if call.Language == "bash" {
			d = shell.Bash
		}
		scripts = append(scripts, shell.Line(call.Script, d))
	}
	return scripts
}

// unread says what of a shell's line its text does not tell, which an approver is told:
// files that it names there are not covered.
func unread(call *policy.Call, argv []string) []string {
	var out []string
	for _, s := range scripts(call, argv) {
		for _, f := range s.Refusals[:min(len(s.Refusals), 1)] {
			out = append(out, "not all that is started can be told from the text, nor which files: "+f.Why)
		}
	}
	return out
}

// contents of a sandbox that is not made yet: what its mounts will show.
type contents struct {
	view  *environment.View
	image string // the digest of a root that is one file; what is in it needs no other
}

// read finds name as a program inside would, and says what is in it.
func (c *contents) read(name string) (approval.File, error) {
	real, e, err := c.view.Find(name)
	if err != nil {
		return approval.File{}, err
	}
	f := e.Handle
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
		return approval.File{Real: real, Digest: fmt.Sprintf("may not be read: %s of %s", hostpath.Identity(info), info.ModTime()), Size: info.Size()}, nil
	}
	return file, err
}

// contentOf digests a regular file that was opened without reading.
func contentOf(f *os.File, name, real string) (approval.File, error) {
	in, err := environment.Reopen(f)
	if err != nil {
		return approval.File{}, err
	}
	defer in.Close()
	return digestOf(name, real, in)
}

func digestOf(name, real string, in io.Reader) (approval.File, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(in, maxContent+1))
	if err == nil && n > maxContent {
		err = fmt.Errorf("it is larger than %d MiB", maxContent>>20)
	}
	return approval.File{Path: name, Real: real, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: n}, err
}

// ContentsOf reads in a persistent sandbox, with the rights of its user. What
// its agent says is as good as the sandbox: code in it may change a file behind
// the approver's back.
func ContentsOf(ctx context.Context, agent *guest.Client) func(string) (approval.File, error) {
	return func(name string) (approval.File, error) {
		e, err := agent.Stat(ctx, name)
		if errors.Is(err, sandbox.ErrNotFound) || err == nil && e.Kind != sandbox.RegularFile {
			return approval.File{}, fs.ErrNotExist
		}
		if err != nil {
			return approval.File{}, err
		}
		sum := sha256.New()
		n, err := agent.ReadFile(ctx, name, sum, maxContent)
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
