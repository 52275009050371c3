// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/build"
	"github.com/caisson-run/caisson/session/registry"
	"github.com/caisson-run/caisson/template"
)

// BuildWish is what a build is made from.
type BuildWish struct {
	From         template.Base
	Steps        []template.RawStep
	Start, Ready string
	NoCache      bool
	// Login is what the registry of the base is asked with. It is kept nowhere.
	Login *image.Login
}

// Run starts a build, which goes on by itself until this process ends, or until the key starts
// another one of the same name: a client that went away cannot end its build but so.
func (t *Templates) Run(name, id string, wish BuildWish) error {
	b := t.boxes
	if err := t.mayPull(wish.From); err != nil {
		return err
	}
	g, err := b.grants.builds(t.key)
	if err != nil {
		return err
	}
	images, err := b.images()
	if err != nil {
		return err
	}
	s := &b.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := t.find(name, id)
	if err != nil {
		return err
	}
	running := 0
	var older []*ownedBuild
	for _, o := range s.all {
		switch {
		case o.owner != t.key.ID || o.State != BuildRunning:
		case one.supersedes(o):
			older = append(older, o)
		default:
			running++
		}
	}
	switch {
	case one.State != BuildWaiting:
		return sandbox.Errorf(sandbox.ErrConflict, "build", "it was started already")
	case running >= maxRunning:
		return &sandbox.Error{Op: "build", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("%d builds of this key run already", running), Hint: "wait for one of them", Rule: ruleQuota}
	}
	names := one.names()
	if err := t.fits(images, g.profile.Quota, names, nil); err != nil {
		return err
	}
	l := newLocked(b, &registry.Sandbox{ID: registry.NewID("i", 20), Owner: t.key.ID})
	l.quota.reserved = build.DefaultLimits()
	if err := b.inventory.add(l.managed, g.profile.Quota); err != nil { // it takes the place of a sandbox
		return err
	}
	if !b.background.hold() {
		b.inventory.remove(l.managed)
		return b.background.open()
	}
	one.State, one.Steps, one.ended = BuildRunning, wish.Steps, make(chan struct{})
	ctx, stop := context.WithCancelCause(b.background.life)
	one.stop = stop
	for _, o := range older {
		o.stop(errSuperseded)
	}
	r := build.Request{
		Name: names[0], Owner: t.key.ID, NoCache: wish.NoCache, Public: true, Login: wish.Login,
		Keep: func(built *image.Stored) error { return t.name(images, g.profile.Quota, names, built) },
		Read: func(o template.Options) (*template.Definition, error) {
			d, err := template.FromSteps(wish.From, wish.Steps, o)
			if err == nil {
				d.Config.Start, d.Config.Ready = wish.Start, wish.Ready
			}
			return d, err
		},
		Upload:   func(hash string) (*os.Root, error) { return t.openUpload(hash) },
		Progress: func(e build.Event) { t.progress(one, e) },
		Call:     session.Call{Frontend: "e2b", Account: t.key.ID},
	}
	r.Call.Actor = t.key.Actor()
	go func() {
		defer b.background.work.Done()
		defer l.unlock()
		defer b.inventory.remove(l.managed)
		for _, o := range older { // so that the name is the newest one's
			<-o.ended
		}
		_, err := (&build.Builder{Session: g.session, Images: images}).Build(ctx, r)
		if err != nil && context.Cause(ctx) == errSuperseded {
			err = errSuperseded
		}
		stop(nil)
		t.end(one, err)
	}()
	return nil
}

// errSuperseded ends a build.
var errSuperseded error = &sandbox.Error{Op: "build", Kind: sandbox.ErrConflict, Problem: "another build of this name was started", Hint: "give it a tag of its own where both are wanted"}

// mayPull refuses a base from a registry where no policy file of the key says which images
// there are: what keys may name is the operator's to say.
func (t *Templates) mayPull(from template.Base) error {
	o := &t.boxes.o
	if from.Kind == template.Host {
		return sandbox.Errorf(sandbox.ErrDenied, "build", "only the operator builds from this host")
	}
	if from.Kind == template.Image && o.System == nil && o.Policies[t.key.Policy] == nil {
		return &sandbox.Error{Op: "build", Kind: sandbox.ErrDenied, Problem: "the key has no policy that names images", Hint: `bind it to one with images: ["` + from.Name + `"]`, Rule: "built-in: images of keys"}
	}
	return nil
}

// progress notes what a build tells. It does not wait.
func (t *Templates) progress(one *ownedBuild, e build.Event) {
	s := &t.boxes.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	say := func(text string) {
		if len(one.Log) < maxBuildLines {
			one.Log = append(one.Log, BuildLine{At: t.boxes.o.Clock.Now(), Step: e.Line, Message: sandbox.Clip(text, maxBuildLine)})
		}
	}
	head := fmt.Sprintf("[%d/%d] ", e.Step, e.Steps)
	switch {
	case e.Output != nil:
		for line := range bytes.Lines(e.Output) {
			say(strings.TrimRight(string(line), "\r\n"))
		}
	case e.State == build.Running:
		say(head + e.Text)
	case e.State == build.Cached:
		say("CACHED " + head + e.Text)
	case e.State == build.Failed:
		one.Step = e.Line
	}
}

// end notes what came of a build.
func (t *Templates) end(one *ownedBuild, err error) {
	s := &t.boxes.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	one.State, one.Err, one.Ended = BuildReady, err, t.boxes.o.Clock.Now()
	if err != nil {
		one.State = BuildFailed
		one.Step = cmp.Or(one.Step, template.StepOf(err))
	}
	close(one.ended)
}
