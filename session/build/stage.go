// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/template"
)

// define reads the definition, finds the bases of its stages, and reads it again with what
// they say.
func (w *work) define(ctx context.Context) (err error) {
	if w.def, err = w.Read(template.Options{}); err != nil {
		return err
	}
	w.needed = needs(w.def)
	w.bases = make([]*image.Stored, len(w.def.Stages))
	known := map[template.Base]template.Config{}
	for i, s := range w.def.Stages {
		if !w.needed[i] {
			continue
		}
		if w.bases[i], err = w.base(ctx, s.From); err != nil {
			return err
		}
		if base := w.bases[i]; base != nil {
			c := base.Config
			known[s.From] = template.Config{Env: c.Env, Dir: c.WorkingDir, User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Start: c.Start, Ready: c.Ready}
		}
	}
	w.def, err = w.Read(template.Options{Base: func(b template.Base) template.Config { return known[b] }})
	return err
}

// needs says which stages the last one needs, itself with them.
func needs(d *template.Definition) []bool {
	need := make([]bool, len(d.Stages))
	need[len(need)-1] = true
	for i := len(need) - 1; i >= 0; i-- {
		if !need[i] {
			continue
		}
		if d.Stages[i].From.Kind == template.Earlier {
			need[d.Stages[i].From.Stage] = true
		}
		for _, s := range d.Stages[i].Steps {
			if s.Copy != nil && s.Copy.From >= 0 {
				need[s.Copy.From] = true
			}
		}
	}
	return need
}

// base finds the image that a stage starts from; nil where it is no image.
func (w *work) base(ctx context.Context, b template.Base) (*image.Stored, error) {
	switch b.Kind {
	case template.Earlier:
		return nil, nil
	case template.Scratch: // a step on it is judged when it runs
		_ = w.settleLimits(w.Call)
		return nil, nil
	case template.Host:
		return nil, w.judge("")
	case template.Template:
		return w.find(ctx, "template:"+b.Name)
	}
	return w.find(ctx, b.Name)
}

// find finds an image that the policy allows, and gets one that is not here. It is the same
// one all through a build.
func (w *work) find(ctx context.Context, name string) (*image.Stored, error) {
	r, err := reference.Parse(name)
	if err != nil {
		return nil, err
	}
	if r.Local() {
		return nil, fail(sandbox.ErrInvalid, "a template cannot start from a file of this host: "+name, "pull it first: caisson image pull "+name+", and name a registry's image")
	}
	if err := w.judge(name); err != nil {
		return nil, err
	}
	if known := w.found[name]; known != nil {
		return known, nil
	}
	o := image.PullOptions{Owner: w.Owner, Insecure: w.Call.InsecureRegistry, Public: w.Public}
	if w.Login != nil && r.Kind != reference.Template {
		return w.pullOnce(ctx, r, name, o)
	}
	info, err := w.Images.Get(ctx, r, o)
	if err == nil {
		w.found[name] = info
	}
	return info, err
}

// pulled is an image that was got with a login: it stays until the build ends.
type pulled struct {
	info *image.Stored
	held io.Closer
}

func (w *work) pullOnce(ctx context.Context, r reference.Ref, name string, o image.PullOptions) (*image.Stored, error) {
	o.Login = w.Login
	info, held, err := w.Images.Hold(ctx, r, o)
	if err != nil {
		return nil, err
	}
	w.found[name], w.pulled = info, append(w.pulled, pulled{info, held})
	return info, nil
}

// discard removes what was got with a login, unless it has a name or another build has it.
func (w *work) discard() {
	for _, p := range w.pulled {
		p.held.Close()
		_ = w.Images.Discard(p.info)
	}
}

// judge asks the policy for a base before anything is got.
func (w *work) judge(name string) error {
	c := w.Call
	c.Image = name
	if r, err := reference.Parse(name); err == nil && r.Kind == reference.Template {
		c.OwnImage = w.Images.MayHave(r, w.Owner) // the operator's own policy bounds the operator
	}
	return w.settleLimits(c)
}

// settleLimits finds whether the policy lets steps have the default limits, which count as
// asked for then, and whether it lets such a call begin at all.
func (w *work) settleLimits(c session.Call) error {
	c.Network = w.network()
	w.roomy = true
	c.Limits = w.limits()
	if w.Session.MayStart(&c) == nil {
		return nil
	}
	w.roomy = false
	c.Limits = w.limits()
	return w.Session.MayStart(&c)
}

// point is how far a stage is.
type point struct {
	tree  *image.Builder
	fresh bool // what is known of steps does not count from here on
	// history is what the steps before came to. The same step has another result each
	// time: what a later one changed counts with that alone which it was run on.
	history string
}

// stage builds one, from what is known of it on.
func (w *work) stage(ctx context.Context, i int) (*point, error) {
	var err error
	s := &w.def.Stages[i]
	base := w.bases[i]
	if s.From.Kind == template.Earlier {
		if base, err = w.earlier(ctx, s.From.Stage); err != nil {
			return nil, err
		}
	}
	for n := range s.Steps { // they come first, as the steps after them need them
		if c := s.Steps[n].Copy; c != nil && c.From >= 0 {
			if _, err := w.earlier(ctx, c.From); err != nil {
				return nil, err
			}
		}
	}
	tree, err := w.Images.Build(base)
	if err != nil {
		return nil, err
	}
	if s.From.Kind == template.Host { // it is not kept by itself: a copy of the copy would take as long
		if err := tree.PutHost(ctx); err != nil {
			return nil, errors.Join(err, tree.Close())
		}
	}
	at := &point{tree: tree, fresh: w.NoCache}
	if base != nil {
		at.history = base.Digest
	}
	for n := range s.Steps {
		w.done++
		at.fresh = at.fresh || s.Steps[n].NoCache
		if err := w.step(ctx, at, i, n); err != nil {
			return nil, errors.Join(w.failed(s.Steps[n], err), tree.Close())
		}
	}
	return at, nil
}

// earlier is another stage, as an image. It has no name, and goes with the next prune.
func (w *work) earlier(ctx context.Context, i int) (*image.Stored, error) {
	if built := w.stages[i]; built != nil {
		return built, nil
	}
	key := digestOf("stage", w.end(i), w.Owner)
	built := w.known(key)
	if built != nil {
		w.skip(i)
	} else {
		var err error
		if built, err = w.finish(ctx, i, key, image.Config{}); err != nil {
			return nil, err
		}
	}
	w.stages[i] = built
	return built, nil
}

// findKeys finds the key of each step: of everything that decides what comes of it.
func (w *work) findKeys(ctx context.Context) error {
	w.keys = make([][]string, len(w.def.Stages))
	for i, s := range w.def.Stages {
		if !w.needed[i] {
			continue
		}
		key := "nothing"
		switch {
		case s.From.Kind == template.Earlier:
			key = w.end(s.From.Stage)
		case s.From.Kind == template.Host:
			var err error
			if key, err = image.HostDigest(); err != nil {
				return err
			}
		case w.bases[i] != nil:
			key = w.bases[i].Digest
		}
		// A key's layers are its own.
		key = digestOf("base", key, runtime.GOARCH, w.Owner, w.Session.PolicyDigest(), w.def.Network, w.Call.Network, w.Call.Secrets)
		if w.level() != usualLevel { // programs can tell, and do other things there
			key = digestOf(key, w.level())
		}
		w.keys[i] = []string{key}
		for n := range s.Steps {
			step := s.Steps[n]
			sources := ""
			if step.Copy != nil {
				var err error
				if sources, err = w.sources(ctx, step.Copy); err != nil {
					w.Progress(Event{Step: w.done, Steps: w.steps(), Text: step.Text, Line: step.Line, State: Failed})
					return w.failed(step, err)
				}
				w.copies[step.Copy] = sources
			}
			step.Text, step.Line = "", 0
			key = digestOf(key, step, sources)
			w.keys[i] = append(w.keys[i], key)
		}
	}
	return nil
}

// end is the key of a whole stage.
func (w *work) end(i int) string { return w.keys[i][len(w.keys[i])-1] }

// failed says which step it was.
func (w *work) failed(s template.Step, err error) error {
	at := ""
	if s.Line > 0 {
		at = fmt.Sprintf(", line %d", s.Line)
	}
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("step %s%s: %w", sandbox.Quoted(sandbox.Clip(s.Text, 200)), at, err)
	}
	c := *e
	c.Problem = fmt.Sprintf("step %d of %d (%s%s): %s", max(w.done, 1), w.steps(), sandbox.Clip(s.Text, 200), at, e.Problem)
	return &c
}
