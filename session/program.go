// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// loadSource reads the code that the call brings along or names, and judges
// it. Its digest is what the policy and the record see; the very bytes that
// were judged are what runs.
func (r *run) loadSource() error {
	c := r.call
	if c.File != "" {
		src, err := r.readFile(c.File, c.FileLanguage)
		if err != nil {
			return err
		}
		c.Source = src
	}
	if c.Source == nil {
		return nil
	}
	p, err := c.Source.plan()
	if err != nil {
		return err
	}
	if p.direct && c.File == "" {
		return &sandbox.Error{Op: "source " + quoted(c.Source.Name), Kind: sandbox.ErrInvalid, Problem: "it is a compiled program",
			Hint: "save it as a file and run that: caisson run ./program"}
	}
	c.Program = append(slices.Clone(p.argv), sourceName(c, p))
	if p.direct {
		c.Program = []string{"./" + sourceName(c, p)}
	}
	if p.language == "bash" || p.language == "sh" {
		c.Script = string(c.Source.Code)
	}
	sum := sha256.Sum256(c.Source.Code)
	r.prog = &p
	c.Kind, c.Call.Language, c.Code = policy.RunCode, p.language, "sha256:"+hex.EncodeToString(sum[:])
	return nil
}

// Judged completes a wish as the road does: with how its source is run. The
// language must be one of Languages.
func Judged(w policy.Wish) (*policy.Call, error) {
	c := w.Call
	if c.Kind != policy.RunCode {
		return &c, nil
	}
	r := &run{call: &Call{Call: c, Source: &Source{Name: w.File, Language: c.Language, Code: []byte(w.Source)}}}
	if err := r.loadSource(); err != nil {
		return nil, err
	}
	if w.File != "" {
		r.call.Program[len(r.call.Program)-1] = filepath.Base(w.File)
	}
	return &r.call.Call, nil
}

// sourceName is the name that source has inside.
func sourceName(c *Call, p program) string {
	if c.File != "" {
		return filepath.Base(c.File)
	}
	return "main" + p.ext
}

// addProgram completes the argv. Source goes into a file of the run directory
// that is shown read-only: what was judged is what runs, whoever changes the
// original meanwhile, and whoever may read that. A compiled program is shown
// itself.
func (r *run) addProgram(w *world) error {
	if r.kind == policy.StartSandbox {
		return nil // the agent is first
	}
	if r.call.fetches {
		return r.addFetch(w)
	}
	if r.prog == nil {
		w.exec.Argv = r.call.Argv
		if r.image != nil && !r.own {
			return r.imageCommand(w)
		}
		return nil
	}
	at, shown := r.place(w)
	switch {
	case shown:
	case r.binary != nil:
		w.spec.Mounts = append(w.spec.Mounts, sandbox.Mount{Source: r.binary.File, Name: r.binary.Name, Target: at})
	default:
		f, err := r.keep(w.spec.StateDir)
		if err != nil {
			return err
		}
		w.spec.Mounts = append(w.spec.Mounts, sandbox.Mount{Source: f, Name: r.call.Source.Name, Target: at})
	}
	if !r.prog.direct {
		w.exec.Argv = append(w.exec.Argv, r.prog.argv...)
	}
	w.exec.Argv = append(append(w.exec.Argv, at), r.call.Argv...)
	return nil
}

// place says where inside the program is: in the working directory under its
// base name; in /tmp where the working directory belongs to a mount, which may
// have such a file already. A file of the workspace is run where it is, so that
// it finds its neighbours; shown is true then.
func (r *run) place(w *world) (at string, shown bool) {
	name := sourceName(r.call, *r.prog)
	if at, ok := r.inWorkspace(w); ok {
		return at, true
	}
	dir := w.cwd
	if r.image != nil && !r.isWritable(dir) {
		dir = w.spec.User.Home // the image's own directory is not to be mounted into
	}
	for _, m := range w.spec.Mounts {
		if m.Dir && sandbox.Within(dir, m.Target) || m.Target == path.Join(dir, name) {
			dir = "/tmp"
		}
	}
	return path.Join(dir, name), false
}

// inWorkspace says where the workspace shows the call's file.
func (r *run) inWorkspace(w *world) (string, bool) {
	if r.call.File == "" || r.plan.Workspace == nil {
		return "", false
	}
	dir, err1 := filepath.EvalSymlinks(r.plan.Workspace.Source)
	file, err2 := filepath.EvalSymlinks(r.call.File)
	if err1 != nil || err2 != nil {
		return "", false
	}
	rel, err := filepath.Rel(dir, file)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return path.Join(workspaceTargetOf(r.plan.Workspace), filepath.ToSlash(rel)), true
}

// keep writes the source into the run directory.
func (r *run) keep(dir string) (*os.File, error) {
	name := filepath.Join(dir, "source")
	err := r.writeSource(name)
	var f *os.File
	if err == nil {
		f, err = os.Open(name)
	}
	if err != nil {
		return nil, &sandbox.Error{Op: "source " + quoted(r.call.Source.Name), Kind: sandbox.ErrUnavailable,
			Problem: "it cannot be kept in the state directory", Hint: "free some space there", Cause: err}
	}
	r.undo.add(func(context.Context) error { return f.Close() })
	return f, nil
}

// writeSource makes the file with the code. Ahead it is empty, and stays open.
func (r *run) writeSource(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o444); err != nil { // whatever the umask
		f.Close()
		return err
	}
	if r.ahead {
		r.source = f
		r.undo.add(func(context.Context) error { f.Close(); return nil }) // it may be closed already
		return nil
	}
	_, err = f.Write(r.call.Source.Code)
	return errors.Join(err, f.Close())
}
