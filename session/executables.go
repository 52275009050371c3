// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/sandbox"
)

// How a policy's list of commands holds (Posture.Commands).
const (
	commandsEnforced = "enforced"
	commandsParsed   = "parsed only"
)

// enforceCommands has the level hold the policy's list of commands for what is
// really executed, where the level can and the list says all that may be. What is
// listed is looked up in the world that was made, by its own files.
func (r *run) enforceCommands(w *world) error {
	if !r.caps.Executables || r.plan.Commands == nil || len(r.plan.Commands.Programs) == 0 {
		return nil
	}
	e := &executables{view: contents{spec: w.spec, within: map[string]*fstree.Node{}}, dir: w.cwd, search: w.search,
		seen: map[string]bool{}, loads: map[string]bool{}, out: &sandbox.Executables{}}
	names := append(strings.Fields(policy.Carriers), r.plan.Commands.Programs...)
	if len(w.exec.Argv) > 0 {
		names = append(names, w.exec.Argv[0])
		names = append(names, r.startedBy(w.exec.Argv)...) // what was asked about is on no list
	}
	for _, name := range names {
		if err := e.add(name); err != nil {
			return &sandbox.Error{Op: "commands", Kind: sandbox.ErrUnavailable, Problem: quoted(name) + " cannot be looked up inside", Cause: err}
		}
	}
	if w.spec.Sudo {
		e.hollow, e.instead = "code may become root inside, and change what is listed", "have code run as the user (user: user), or leave enforce out"
	}
	switch {
	case e.hollow == "":
	case r.plan.Commands.Enforce != "" && !r.plan.BestEffort:
		return &sandbox.Error{Op: "commands.enforce", Kind: sandbox.ErrUnsupported, Problem: e.hollow, Hint: e.instead, Rule: r.plan.Commands.Enforce}
	default:
		return nil // a list of files would say nothing
	}
	for _, dir := range w.search {
		if real, f, err := e.view.find(dir); err == nil {
			f.close()
			e.out.Closed = append(e.out.Closed, real)
		}
	}
	slices.Sort(e.out.Closed)
	e.out.Closed = slices.Compact(e.out.Closed)
	for name := range e.loads {
		e.out.Loaders = append(e.out.Loaders, name)
	}
	slices.Sort(e.out.Loaders)
	w.spec.Executables = e.out
	return nil
}

// startedBy are the names of the commands that the call is judged by, where it was
// looked at in detail because somebody is asked.
func (r *run) startedBy(argv []string) []string {
	if r.question == nil {
		return nil
	}
	var out []string
	for _, words := range r.starts(argv) {
		if words[0] != "" {
			out = append(out, words[0])
		}
	}
	return out
}

// executables collects what has to be executed for a list of programs.
type executables struct {
	view   contents
	dir    string
	search []string
	seen   map[string]bool
	loads  map[string]bool // those of out.Files that nobody has named, but as a loader
	out    *sandbox.Executables

	hollow  string // why a list of files would say nothing
	instead string // what to do about it
}

// mostExecutables bounds the list.
const mostExecutables = 1024

// add finds a program by its name, wherever PATH has it, or by its path.
func (e *executables) add(name string) error {
	if strings.Contains(name, "/") {
		return e.file(absoluteIn(e.dir, name), name)
	}
	for _, dir := range e.search {
		if err := e.file(path.Join(dir, name), name); err != nil {
			return err
		}
	}
	for _, h := range helpers(name) {
		if real, f, err := e.view.find(h); err == nil {
			mode, _, err := f.kind()
			f.close()
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
	real, f, err := e.view.find(at)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.close()
	delete(e.loads, real)
	mode, _, err := f.kind()
	if err != nil || !mode.IsRegular() || e.seen[real] {
		return err
	}
	if base := path.Base(real); base != shell.Base(name) && slices.Contains([]string{"busybox", "toybox", "coreutils"}, base) {
		e.hollow, e.instead = "in this root one file is many programs (busybox)", "take a root that has each program in a file of its own, or leave enforce out"
	}
	if len(e.out.Files) == mostExecutables {
		return errors.New("there are too many programs")
	}
	e.seen[real] = true
	e.out.Files = append(e.out.Files, real)
	words, loader, err := e.along(f)
	if err != nil {
		return err
	}
	if m, _ := e.view.owner(real); loader && m != nil && m.Access != sandbox.ReadOnly {
		e.hollow, e.instead = quoted(name)+" is in a mount that code inside can change", "mount it read-only, or leave enforce out"
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

// loader adds a program's loader, which nobody has named.
func (e *executables) loader(name string) error {
	real, f, err := e.view.find(name)
	if err != nil {
		return e.file(name, name)
	}
	f.close()
	unnamed := !e.seen[real] || e.loads[real]
	if err := e.file(name, name); err != nil {
		return err
	}
	if unnamed && e.seen[real] {
		e.loads[real] = true
	}
	return nil
}

// along is what the kernel executes along with a program: the loader that an ELF
// file names, or a script's interpreter, with its argument; elf says which. A file that cannot be
// read, or is neither, has none. It is whatever somebody put there.
func (e *executables) along(f found) (words []string, elf bool, err error) {
	if f.node != nil {
		return alongside(io.NewSectionReader(e.view.spec.Root.Image.EROFS, f.node.Offset, f.node.Size))
	}
	in, err := readAgain(f.file)
	if errors.Is(err, fs.ErrPermission) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	return alongside(in)
}

func alongside(in io.ReaderAt) (words []string, elf bool, err error) {
	head := make([]byte, 4096)
	n, err := in.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	head = head[:n]
	if words, ok := shebangWords(head); ok {
		return words, false, nil
	}
	if loader := loaderOf(head, in); path.IsAbs(loader) {
		return []string{loader}, true, nil
	}
	return nil, isELF(head), nil
}

func shebangWords(head []byte) ([]string, bool) {
	line, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return nil, false
	}
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	return strings.Fields(string(line[:min(len(line), 255)])), true
}

// loaderOf reads the name of an ELF file's loader (PT_INTERP); empty when there is
// none.
func loaderOf(head []byte, in io.ReaderAt) string {
	if len(head) < 64 || !isELF(head) || head[4] != 2 || head[5] != 1 { // 64 bits, little-endian: amd64 and arm64
		return ""
	}
	le := binary.LittleEndian
	offset, size, count := le.Uint64(head[32:]), int(le.Uint16(head[54:])), int(le.Uint16(head[56:]))
	if size < 56 || size*count > 64<<10 || offset > 1<<40 {
		return ""
	}
	table := make([]byte, size*count)
	if _, err := in.ReadAt(table, int64(offset)); err != nil {
		return ""
	}
	for ; len(table) >= size; table = table[size:] {
		if le.Uint32(table) != 3 { // PT_INTERP
			continue
		}
		at, length := le.Uint64(table[8:]), le.Uint64(table[32:])
		if at > 1<<40 || length > 4096 {
			return ""
		}
		name := make([]byte, length)
		if _, err := in.ReadAt(name, int64(at)); err != nil {
			return ""
		}
		return strings.TrimRight(string(name), "\x00")
	}
	return ""
}
