// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// Program is code that runs first, and how.
type Program struct {
	// Argv is what it is run with, its interpreter; the file's path and the call's
	// arguments follow.
	Argv []string
	// Name is its file's name inside, and From what messages call it.
	Name, From string
	// File is the host file that it was read from; empty when it came with the call.
	File string
	// Code is its text, which is what runs, also when File is changed
	// meanwhile.
	Code []byte
	// Binary is the file itself, when that is a compiled program.
	Binary *hostpath.Source
	// Later has the file stay empty until Fill: its text is not known yet.
	Later bool

	empty *os.File // with Later
}

// addProgram completes the argv. Source goes into a file of the run directory
// that is shown read-only: what was judged is what runs, also when the original
// is changed meanwhile, and whatever its mode. A compiled program is shown
// itself.
func (e *Environment) addProgram() error {
	p := e.o.Program
	switch {
	case e.o.First == Fetch:
		return e.addFetch()
	case e.o.First == Agent || p == nil:
		return nil
	}
	at, shown := e.place(p)
	switch {
	case shown:
	case p.Binary != nil:
		e.Spec.Mounts = append(e.Spec.Mounts, sandbox.Mount{Source: p.Binary.File, Name: p.Binary.Name, Target: at})
	default:
		if err := e.keepSource(p, at); err != nil {
			return err
		}
	}
	e.Exec.Argv = append(append(slices.Clone(p.Argv), at), e.o.Call.Argv...)
	return nil
}

// place says where inside the program is: in the working directory under its
// base name; in /tmp where the working directory belongs to a mount, which may
// have such a file already. A file of the workspace is run where it is, so that
// it finds its neighbours; shown is true then.
func (e *Environment) place(p *Program) (at string, shown bool) {
	if at, ok := e.inWorkspace(p); ok {
		return at, true
	}
	dir := e.Dir
	if e.Image != nil && !e.isWritable(dir) {
		dir = e.Spec.User.Home // the image's own directory is not to be mounted into
	}
	for _, m := range e.Spec.Mounts {
		if m.Dir && sandbox.Within(dir, m.Target) || m.Target == path.Join(dir, p.Name) {
			dir = "/tmp"
		}
	}
	return path.Join(dir, p.Name), false
}

// inWorkspace says where the workspace shows the call's file.
func (e *Environment) inWorkspace(p *Program) (string, bool) {
	ws := e.o.Plan.Workspace
	if p.File == "" || ws == nil {
		return "", false
	}
	dir, err1 := filepath.EvalSymlinks(ws.Source)
	file, err2 := filepath.EvalSymlinks(p.File)
	if err1 != nil || err2 != nil {
		return "", false
	}
	rel, err := filepath.Rel(dir, file)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return path.Join(WorkspaceTarget(ws), filepath.ToSlash(rel)), true
}

// keepSource writes the source into the run directory and shows it at a path inside.
func (e *Environment) keepSource(p *Program, at string) error {
	name := filepath.Join(e.Spec.StateDir, "source")
	err := e.writeSource(p, name)
	if err == nil {
		err = e.show(name, at)
	}
	if err != nil {
		return unkept(p.From, err)
	}
	e.Spec.Mounts[len(e.Spec.Mounts)-1].Name = p.From
	return nil
}

func unkept(name string, err error) error {
	return &sandbox.Error{Op: "source " + sandbox.Quoted(name), Kind: sandbox.ErrUnavailable,
		Problem: "it cannot be kept in the state directory", Hint: "free some space there", Cause: err}
}

// writeSource makes the file with the code. With Later it is empty, and stays open.
func (e *Environment) writeSource(p *Program, name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o444); err != nil { // whatever the umask
		f.Close()
		return err
	}
	if p.Later {
		p.empty = f
		e.o.Host.Undo.Close(closedOnce{f})
		return nil
	}
	_, err = f.Write(p.Code)
	return errors.Join(err, f.Close())
}

// closedOnce is a file that may be closed already.
type closedOnce struct{ *os.File }

func (c closedOnce) Close() error { c.File.Close(); return nil }

// Fill writes the code into the file that the sandbox shows: it was made for it,
// empty, and nothing has run there. from is what messages call it.
func (e *Environment) Fill(from string, code []byte) error {
	f := e.o.Program.empty
	_, err := f.Write(code)
	if err = errors.Join(err, f.Close()); err != nil {
		return unkept(from, err)
	}
	return nil
}

// fetchTarget is where the program is inside that makes a declared request.
const fetchTarget = "/tmp/caisson-fetch"

// addFetch puts that program in, which is the agent's, as a file that nothing of the
// call's has made.
func (e *Environment) addFetch() error {
	failed := func(err error) error {
		return &sandbox.Error{Op: "declared request", Kind: sandbox.ErrUnavailable, Problem: "its program cannot be put into the state directory", Hint: "free some space there", Cause: err}
	}
	from, err := guest.OpenAgent()
	if err != nil {
		return failed(err)
	}
	defer from.Close()
	name := filepath.Join(e.Spec.StateDir, "fetch")
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failed(err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o555), to.Close()); err != nil {
		return failed(err)
	}
	if err := e.show(name, fetchTarget); err != nil {
		return failed(err)
	}
	e.Spec.Mounts[len(e.Spec.Mounts)-1].Name = "caisson"
	e.Exec.Argv = []string{fetchTarget, wire.FetchWord}
	return nil
}
