// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/sandbox"
)

// listsCommands says whether a plan lists what may be executed. Code that is root with all
// that root has could change what is listed: beside a list it is uid 0 and no more.
func listsCommands(p *policy.Plan) bool { return p.Commands != nil && len(p.Commands.Programs) > 0 }

// enforceCommands has the level hold the policy's list of commands for what is
// really executed, where the level can and the list says all that may be. What is
// listed is looked up in the environment that was made, by its own files.
func (e *Environment) enforceCommands(more func(argv []string) []string) error {
	list := e.o.Plan.Commands
	if !e.o.Caps.Executables || !listsCommands(e.o.Plan) {
		return nil
	}
	x := &executables{view: View{spec: e.Spec, within: map[string]*fstree.Node{}}, dir: e.Dir, search: e.Search,
		seen: map[string]bool{}, loads: map[string]bool{}, out: &sandbox.Executables{}}
	names := append(strings.Fields(policy.Carriers), list.Programs...)
	if len(e.Exec.Argv) > 0 {
		names = append(append(names, e.Exec.Argv[0]), more(e.Exec.Argv)...) // what was asked about is on no list
	}
	for _, name := range names {
		if err := x.add(name); err != nil {
			return &sandbox.Error{Op: "commands", Kind: sandbox.ErrUnavailable, Problem: sandbox.Quoted(name) + " cannot be looked up inside", Cause: err}
		}
	}
	if e.Spec.Sudo {
		x.hollow, x.instead = "code may become root inside, and change what is listed", "have code run as the user (user: user), or leave enforce out"
	}
	switch {
	case x.hollow == "":
	case list.Enforce != "" && !e.o.Plan.BestEffort:
		return &sandbox.Error{Op: "commands.enforce", Kind: sandbox.ErrUnsupported, Problem: x.hollow, Hint: x.instead, Rule: list.Enforce}
	default:
		return nil // a list of files would say nothing
	}
	for _, dir := range e.Search {
		if real, f, err := x.view.Find(dir); err == nil {
			f.Close()
			x.out.Closed = append(x.out.Closed, real)
		}
	}
	slices.Sort(x.out.Closed)
	x.out.Closed = slices.Compact(x.out.Closed)
	x.out.Loaders = slices.Sorted(maps.Keys(x.loads))
	e.Spec.Executables = x.out
	return nil
}

// executables collects what has to be executed for a list of programs.
type executables struct {
	view   View
	dir    string
	search []string
	seen   map[string]bool
	loads  map[string]bool // those of out.Files that are there as a loader only
	out    *sandbox.Executables

	hollow  string // why a list of files would say nothing
	instead string // what to do about it
}

// maxExecutables bounds the list.
const maxExecutables = 1024

// add finds a program by its name, wherever PATH has it, or by its path.
func (e *executables) add(name string) error {
	if strings.Contains(name, "/") {
		return e.file(absolute(e.dir, name), name)
	}
	for _, dir := range e.search {
		if err := e.file(path.Join(dir, name), name); err != nil {
			return err
		}
	}
	for _, h := range helpers(name) {
		if real, f, err := e.view.Find(h); err == nil {
			mode, _, err := f.kind()
			f.Close()
			if err == nil && mode.IsDir() && !slices.Contains(e.out.Trees, real) {
				e.out.Trees = append(e.out.Trees, real)
			}
		}
	}
	return nil
}

// helpers are directories of programs that belong to one: what it starts to do its
// own work.
func helpers(name string) []string {
	switch shell.Base(name) {
	case "git":
		return []string{"/usr/lib/git-core", "/usr/libexec/git-core"}
	case "gcc", "g++", "cc", "c++":
		return []string{"/usr/lib/gcc", "/usr/libexec/gcc"}
	}
	return nil
}

// file adds a program, and what the kernel executes along with it. One that is not
// there needs no entry.
func (e *executables) file(at, name string) error {
	real, f, err := e.view.Find(at)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	delete(e.loads, real)
	mode, _, err := f.kind()
	if err != nil || !mode.IsRegular() || e.seen[real] {
		return err
	}
	if base := path.Base(real); base != shell.Base(name) && slices.Contains([]string{"busybox", "toybox", "coreutils"}, base) {
		e.hollow, e.instead = "in this root one file is many programs (busybox)", "take a root that has each program in a file of its own, or leave enforce out"
	}
	if len(e.out.Files) == maxExecutables {
		return errors.New("there are too many programs")
	}
	e.seen[real] = true
	e.out.Files = append(e.out.Files, real)
	words, loader, err := e.along(f)
	if err != nil {
		return err
	}
	if m, _ := e.view.owner(real); loader && m != nil && m.Access != sandbox.ReadOnly {
		e.hollow, e.instead = sandbox.Quoted(name)+" is in a mount that code inside can change", "mount it read-only, or leave enforce out"
	}
	for i, word := range words {
		if i > 0 && (!strings.Contains(words[0], "/env") || strings.HasPrefix(word, "-") || strings.Contains(word, "=")) {
			continue
		}
		if loader {
			err = e.loader(word)
		} else {
			err = e.add(word)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loader adds a program's loader, which no list names.
func (e *executables) loader(name string) error {
	real, f, err := e.view.Find(name)
	if err != nil {
		return e.file(name, name)
	}
	f.Close()
	unnamed := !e.seen[real] || e.loads[real]
	if err := e.file(name, name); err != nil {
		return err
	}
	if unnamed && e.seen[real] {
		e.loads[real] = true
	}
	return nil
}
