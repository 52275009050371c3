// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// madeOf is what a sandbox is made of.
type madeOf struct {
	image     string // empty is the host's toolchain
	own, root bool   // a template that the key may have by itself; the sandbox has a root of its own
}

// madeOf finds what a key's sandbox is made of: a template that the operator has
// configured, else one that was built here, the key's own before the operator's. What its own
// was made of was judged then, and one that the operator shares every key may have.
func (b *Sandboxes) madeOf(k *Key, name string) (m madeOf, err error) {
	if !b.isBuilt(name) {
		t := b.o.Templates[name]
		return madeOf{image: t.Image, root: t.Root}, nil
	}
	images, err := b.images()
	if err != nil {
		return m, err
	}
	r, err := reference.Parse("template:" + name)
	if err == nil {
		_, err = images.Get(context.Background(), r, image.PullOptions{Owner: templateOwner(k)})
	}
	if errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrInvalid) {
		return m, &sandbox.Error{Op: "template " + sandbox.Quoted(sandbox.Clip(name, maxName)), Kind: sandbox.ErrNotFound, Problem: "there is none", Hint: "take " + BaseTemplate + ", or build it first"}
	}
	return madeOf{image: r.String(), own: images.MayHave(r, templateOwner(k))}, err
}

// judgeOwn has the policy judge what a sandbox goes on with that was of its key's own
// template, where both that image and the key's right to the name are gone: the name may be
// one of the operator's by now. It is called before anything is decided.
func (b *Sandboxes) judgeOwn(r *session.Invocation, rec *Sandbox) error {
	if !rec.OwnImage {
		return nil
	}
	images, err := b.images()
	if err != nil {
		return err
	}
	ref, err := reference.Parse(rec.Image)
	if err == nil && (rec.ImageDigest == "" || !images.Has(rec.ImageDigest)) {
		r.Call.OwnImage = images.MayHave(ref, rec.Owner)
	}
	return err
}

// isBuilt says whether a name is none of the configured templates.
func (b *Sandboxes) isBuilt(name string) bool {
	_, configured := b.o.Templates[name]
	return !configured && name != BaseTemplate
}

// readyLimit is how long a template may take until it is ready: E2B's clients wait for a
// sandbox for 60 s.
const readyLimit = 60 * time.Second

// The lines by which a template's commands, each a $0, are started and waited for: inside,
// which is one call, however often it is asked.
const (
	startLine = `/bin/sh -c "$0" </dev/null >/dev/null 2>&1 &`
	readyLine = `until /bin/sh -c "$0"; do sleep 0.1; done`
)

// prepare runs what the sandbox's template starts, and waits until that is ready. Both are
// calls of the key in it, which its policy decides.
func (l locked) prepare(ctx context.Context, k *Key) error {
	l.mu.Lock()
	in := l.in
	l.mu.Unlock()
	if in == nil || in.env.Image == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	h, c := l.b.Handle(k, l.id), in.env.Image.Config
	if c.Start != "" { // it goes on by itself, unlike the call
		if err := h.carryOut(ctx, startLine, c.Start); err != nil {
			return notReady("what it starts was not started", c.Start, err)
		}
	}
	if c.Ready == "" {
		return nil
	}
	err := h.carryOut(ctx, readyLine, c.Ready)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return notReady(fmt.Sprintf("it was not ready within %s", readyLimit), c.Ready, nil)
	case err != nil:
		return notReady("it cannot be asked whether it is ready", c.Ready, err)
	}
	return nil
}

// carryOut runs a line for a template's command, which is its $0.
func (h *Handle) carryOut(ctx context.Context, line, command string) error {
	call := &session.Call{}
	call.Argv = []string{"/bin/sh", "-c", line, command}
	res, err := h.Exec(ctx, call, session.IO{})
	if err == nil && res.Status != sandbox.StatusSuccess {
		err = sandbox.Errorf(sandbox.ErrUnavailable, "template", "%s", cmp.Or(res.Reason, strings.TrimSpace(string(res.Stderr)), res.Signal, string(res.Status)))
	}
	return err
}

func notReady(problem, command string, cause error) error {
	e := &sandbox.Error{Op: "template", Kind: sandbox.ErrUnavailable, Problem: problem + " (" + sandbox.Clip(command, 200) + ")", Hint: "look at the template's start and ready commands", Cause: cause}
	if of := (*sandbox.Error)(nil); errors.As(cause, &of) {
		e.Kind, e.Problem, e.Rule = of.Kind, e.Problem+": "+of.Problem, of.Rule
	}
	return e
}

// images are those of this state directory.
func (b *Sandboxes) images() (*image.Store, error) {
	s, err := image.OpenStore(filepath.Join(b.o.State.Path(), "images"))
	if err == nil {
		s.KeepWhile(func(digest string) (bool, error) { return b.o.Registry.GoesOn(context.Background(), digest) })
	}
	return s, err
}

// templateOwner is whose templates a key has; empty is the operator.
func templateOwner(k *Key) string {
	if k.Owner != "" {
		return ""
	}
	return k.ID
}
