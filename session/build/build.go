// SPDX-License-Identifier: Apache-2.0

// Package build builds templates: it runs the steps of a definition in sandboxes, one after
// the other, and keeps the tree that comes of them as an image. Each step is a call of its
// own that goes through package session; no step runs on the host.
//
// What a step has changed is kept by everything that decides it, so that a build which was
// stopped goes on where it was, and one whose definition has changed begins there.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/template"
)

// Request is what is to be built.
type Request struct {
	// Name is what the template is called, Owner whose it is: the ID of a key; empty is the
	// operator.
	Name  reference.Ref
	Owner string
	// Read reads what it is built from. It is called twice: bases are known the second time.
	Read func(template.Options) (*template.Definition, error)
	// Dir is the build's directory, which COPY takes files from, but for what Ignore names.
	// nil is none.
	Dir    *os.Root
	Ignore template.Ignore
	// Upload opens the files that a client has sent for a COPY; nil where none sends any.
	Upload func(hash string) (*os.Root, error)
	// Public has images that are not here pulled from public registries alone, without the
	// operator's credentials.
	Public bool
	// Login is what the registry of the base is asked with, for this build alone; nil is as
	// Public says.
	Login *image.Login
	// NoCache runs all steps, also those whose result is known.
	NoCache bool
	// Call says who asks, how steps are bounded, and with Isolation on which level they run:
	// gvisor where it is empty. What runs is the builder's to fill in.
	Call session.Call
	// Keep gives what was built its names, instead of Name; nil gives it that. Its error is
	// the build's.
	Keep func(*image.Stored) error
	// Progress is told of each step, from one goroutine at a time. It must not block. nil is
	// not told.
	Progress func(Event)
}

// Event is news of a build.
type Event struct {
	Step, Steps int // from 1
	Text        string
	Line        int // where the definition has it, from 1
	State       State
	// Output is what the step wrote, with State Running. It is valid until Progress returns.
	Output []byte
	Took   time.Duration // with State Done
}

// State is how far a step is.
type State string

// The states of a step.
const (
	Running State = "running"
	Cached  State = "cached"
	Done    State = "done"
	Failed  State = "failed"
)

// Builder builds templates. It may be used from many goroutines.
type Builder struct {
	Session *session.Session
	Images  *image.Store
}

// Build builds a template and gives it its name. The one that had the name goes, where it
// has no other and no sandbox uses it.
//
// Errors are ErrInvalid for a definition that cannot be built, ErrDenied for what the
// policy refuses, ErrInvalid with the step that fails,
// ErrExhausted where a limit ended it, and those of images.
func (b *Builder) Build(ctx context.Context, r Request) (built *image.Stored, err error) {
	if r.Progress == nil {
		r.Progress = func(Event) {}
	}
	w := &work{Builder: b, Request: &r, found: map[string]*image.Stored{}, stages: map[int]*image.Stored{}, copies: map[*template.Copy]string{}}
	err = b.Session.RecordBuild(ctx, &r.Call, r.Name.Familiar(), func(ctx context.Context) (string, error) {
		defer w.discard()
		if built, err = w.build(ctx); err != nil {
			return "", err
		}
		return built.Digest, nil
	})
	if err != nil {
		return nil, err
	}
	return built, nil
}

// work is one build.
type work struct {
	*Builder
	*Request
	def    *template.Definition
	bases  []*image.Stored // of each stage; nil for an earlier stage, for nothing, and where it is not needed
	needed []bool
	keys   [][]string // of each stage: of its base, and after each of its steps
	found  map[string]*image.Stored
	stages map[int]*image.Stored     // those that are built already
	copies map[*template.Copy]string // digests of what is copied from files
	done   int                       // steps

	pulled []pulled // with Login

	roomy bool // the policy lets the default limits through
}

func (w *work) build(ctx context.Context) (*image.Stored, error) {
	w.Images.Sweep()
	if err := w.define(ctx); err != nil {
		return nil, err
	}
	if err := w.findKeys(ctx); err != nil {
		return nil, err
	}
	last := len(w.def.Stages) - 1
	config := imageConfig(w.def)
	key := digestOf("template", w.end(last), config, w.Owner)
	built := w.known(key)
	if built == nil {
		var err error
		if built, err = w.finish(ctx, last, key, config); err != nil {
			return nil, err
		}
	} else {
		for i := range w.def.Stages {
			w.skip(i)
		}
	}
	if w.Keep != nil {
		return built, w.Keep(built)
	}
	return built, w.Images.Name(w.Name, w.Owner, built)
}

// renews says whether a step is to be run also where its result is known.
func (w *work) renews() bool {
	for i, s := range w.def.Stages {
		if w.needed[i] && slices.ContainsFunc(s.Steps, func(s template.Step) bool { return s.NoCache }) {
			return true
		}
	}
	return w.NoCache
}

// finish builds a stage and keeps it, under a digest of what its steps have come to.
func (w *work) finish(ctx context.Context, i int, key string, c image.Config) (*image.Stored, error) {
	at, err := w.stage(ctx, i)
	if err != nil {
		return nil, err
	}
	defer at.tree.Close()
	built, err := at.tree.Finish(ctx, digestOf(key, at.history), c)
	if err != nil {
		return nil, err
	}
	return built, w.note(ctx, key, built)
}

// known is the image that the last build of a definition came to; nil where there is none,
// and where steps are to be run again.
func (w *work) known(key string) *image.Stored {
	if w.renews() {
		return nil
	}
	f, err := w.Images.Step(strings.TrimPrefix(key, "sha256:"))
	if f == nil || err != nil {
		return nil // it is made from what is known of its steps
	}
	defer f.Close()
	digest, err := io.ReadAll(io.LimitReader(f, 100))
	if err != nil || !fstree.IsDigest(string(digest)) {
		return nil
	}
	built, err := w.Images.Info(string(digest))
	if err != nil {
		return nil
	}
	return built
}

// note keeps what a build of a definition came to.
func (w *work) note(ctx context.Context, key string, built *image.Stored) error {
	key = strings.TrimPrefix(key, "sha256:")
	w.Images.DropStep(key)
	f, err := w.Images.KeepStep(ctx, key, func(f *os.File) error {
		_, err := f.WriteString(built.Digest)
		return err
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// skip tells that all steps of a stage are known.
func (w *work) skip(i int) {
	for _, s := range w.def.Stages[i].Steps {
		if w.needed[i] {
			w.done++
			w.Progress(Event{Step: w.done, Steps: w.steps(), Text: s.Text, Line: s.Line, State: Cached})
		}
	}
}

// steps is how many there are.
func (w *work) steps() (n int) {
	for i, s := range w.def.Stages {
		if w.needed[i] {
			n += len(s.Steps)
		}
	}
	return n
}

// imageConfig is what sandboxes of the template begin with.
func imageConfig(d *template.Definition) image.Config {
	c := &d.Config
	return image.Config{Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: c.Env, User: c.User, WorkingDir: c.Dir, Start: c.Start, Ready: c.Ready, Warmup: d.Warmup}
}

// digestOf is a digest of several things, told apart.
func digestOf(parts ...any) string {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(parts); err != nil {
		panic(err) // they are strings, numbers and lists of them
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// fail is the error of a build.
func fail(kind error, problem, hint string) error {
	return &sandbox.Error{Op: "template build", Kind: kind, Problem: problem, Hint: hint}
}
