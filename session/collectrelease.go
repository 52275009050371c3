// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// mayRelease says why a file of this name does not come out: a program of the host would
// run it, or what is in it, without being asked to. What a read-write workspace keeps as
// it is does not come out either, unless the pattern has that very name; git's own never
// do, and nothing comes out into a directory that git takes for a repository, or to make
// one.
func (c *collector) mayRelease(name string) error {
	refuse := func(problem, hint string) error {
		return &sandbox.Error{Op: "collect into " + sandbox.Quoted(c.wish.Dest), Kind: sandbox.ErrDenied, Problem: problem, Hint: hint, Rule: "built-in: what runs on the host"}
	}
	const bundle = "to take a repository out let the program make a bundle: git bundle create out.bundle --all"
	for word := range strings.SplitSeq(name, "/") {
		switch _, why, found := hostpath.RunsByName(word); {
		case !found:
		case hostpath.IsGit(word):
			return refuse(sandbox.Quoted(name)+" is not brought out: "+why, bundle)
		case !c.spells(word):
			return refuse(sandbox.Quoted(name)+" is not brought out: "+why, "if that is wanted, name it in the pattern: "+word)
		}
	}
	if word := path.Base(name); hostpath.IsHead(word) && !c.spells(word) {
		return refuse(sandbox.Quoted(name)+" is not brought out: with it git may take the directory for a repository and run its config", bundle)
	}
	if dir, makes := c.repository(name); makes {
		return refuse(sandbox.Quoted(name)+" is not brought out: "+sandbox.Quoted(dir)+" is or would be a repository, whose config git runs", bundle)
	}
	return nil
}

// spells says whether the pattern has a part that is this very name, and no wildcard.
func (c *collector) spells(word string) bool {
	for part := range strings.SplitSeq(c.wish.Pattern, "/") {
		if part == word && !strings.ContainsAny(part, `*?[{\`) {
			return true
		}
	}
	return false
}

// repository finds a directory, the caller's or one below it, that git would take for a
// repository when there is a file called name, or takes for one now.
func (c *collector) repository(name string) (dir string, makes bool) {
	exists := func(rel string) bool {
		_, err := c.root.Lstat(rel)
		return err == nil
	}
	if dir, makes := hostpath.CompletesRepository(name, exists); makes {
		return dir, true
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if head := path.Join(dir, "HEAD"); exists(head) {
			if _, makes := hostpath.CompletesRepository(head, exists); makes {
				return dir, true
			}
		}
		if dir == "." {
			return "", false
		}
	}
}

// leadsTo refuses a directory for files whose name leads by a link to where the host runs
// something, unless the name says so: code may have left the link there in an earlier run.
func leadsTo(dest string, root *os.Root) error {
	real, err := filepath.EvalSymlinks(dest)
	if err != nil {
		return err
	}
	opened, err := root.Stat(".")
	if err != nil {
		return err
	}
	if there, err := os.Lstat(real); err != nil || !os.SameFile(opened, there) {
		return syscall.ENOTDIR // another took its place
	}
	said := strings.Split(filepath.ToSlash(dest), "/")
	for word := range strings.SplitSeq(filepath.ToSlash(real), "/") {
		if _, why, found := hostpath.RunsByName(word); found && !slices.Contains(said, word) {
			return &sandbox.Error{Op: "collect into " + sandbox.Quoted(dest), Kind: sandbox.ErrDenied, Rule: "built-in: what runs on the host",
				Problem: "a link leads from there to " + sandbox.Quoted(real) + ": " + why, Hint: "look at who made the link; if it is yours, name that directory itself"}
		}
	}
	return nil
}
