// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/template"
)

// step carries one out, or takes what is known to come of it.
func (w *work) step(ctx context.Context, at *point, stage, n int) error {
	s := &w.def.Stages[stage].Steps[n]
	began := time.Now()
	tell := func(state State, took time.Duration) {
		w.Progress(Event{Step: w.done, Steps: w.steps(), Text: s.Text, Line: s.Line, State: state, Took: took})
	}
	var err error
	known := false
	switch {
	case s.Copy != nil:
		tell(Running, 0)
		err = w.copy(ctx, at, s)
	case s.MakeDir != "":
		tell(Running, 0)
		err = w.makeDir(ctx, at.tree, s)
	default:
		known, err = w.run(ctx, at, s, w.keys[stage][n+1], tell)
	}
	switch {
	case err != nil:
		tell(Failed, time.Since(began))
	case known:
		tell(Cached, 0)
	default:
		tell(Done, time.Since(began))
	}
	return err
}

// run runs a program, unless it is known what it changes.
func (w *work) run(ctx context.Context, at *point, s *template.Step, key string, tell func(State, time.Duration)) (known bool, err error) {
	key = digestOf(key, at.history)
	if hex := strings.TrimPrefix(key, "sha256:"); at.fresh && !w.Images.DropStep(hex) {
		key = digestOf(key, rand.Text()) // another build reads it just now
	}
	key = strings.TrimPrefix(key, "sha256:")
	layer, err := w.Images.Step(key)
	if err != nil {
		return false, err
	}
	if known = layer != nil; !known {
		tell(Running, 0)
		layer, err = w.Images.KeepStep(ctx, key, func(f *os.File) error { return w.carryOut(ctx, at.tree, s, f) })
		if err != nil {
			return false, err
		}
	}
	defer layer.Close()
	sum := sha256.New()
	r, err := zstd.NewReader(io.TeeReader(layer, sum))
	if err != nil {
		return known, err
	}
	defer r.Close()
	if err := at.tree.Put(ctx, r); err != nil {
		return known, err
	}
	_, err = io.Copy(io.Discard, r)
	at.history = digestOf(at.history, sum.Sum(nil))
	return known, err
}

// maxLayer bounds what a step has changed, in bytes: as much as an image may have. Holes of
// files count, which take no disk inside.
const maxLayer = 33 << 30

// carryOut runs a program in a sandbox and writes what it has changed to a file.
func (w *work) carryOut(ctx context.Context, tree *image.Builder, s *template.Step, to *os.File) error {
	user, err := tree.Account(s.User)
	if err != nil {
		return err
	}
	c := w.Call
	c.Argv, c.Cwd, c.Isolation, c.Sudo = s.Argv, s.Dir, w.level(), true
	if c.Cwd == "" {
		c.Cwd = "/"
	}
	c.Network = w.network()
	c.Limits = w.limits()
	c.Step = &environment.Step{Tree: tree, User: user, Config: image.Config{Env: s.Env, User: s.User, WorkingDir: s.Dir}}
	c.Changed = func(_ context.Context, layer io.Reader) error {
		z, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return err
		}
		n, err := io.Copy(z, io.LimitReader(layer, maxLayer+1))
		if err == nil && n > maxLayer {
			err = fail(sandbox.ErrExhausted, fmt.Sprintf("its files are larger than %d GiB together, holes with them", maxLayer>>30), "remove large files that have holes at the end of the step")
		}
		return errors.Join(err, z.Close())
	}
	out := &output{tell: func(b []byte) {
		w.Progress(Event{Step: w.done, Steps: w.steps(), Text: s.Text, Line: s.Line, State: Running, Output: b})
	}}
	res, err := w.Session.Do(ctx, &c, session.IO{Stdout: out, Stderr: out})
	if err != nil {
		return err
	}
	return ended(ctx, res)
}

// usualLevel is where steps run.
const usualLevel = "gvisor"

// level is where these do.
func (w *work) level() string { return cmp.Or(w.Call.Isolation, usualLevel) }

// output passes on what a step writes to either stream.
type output struct {
	mu   sync.Mutex
	tell func([]byte)
}

// Write passes on p.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell(p)
	return len(p), nil
}

// ended is why a step has failed; nil when it has not.
func ended(ctx context.Context, res *sandbox.Result) error {
	e := &sandbox.Error{Op: "template build", Kind: sandbox.ErrInvalid, Hint: res.Hint, Rule: res.Rule}
	switch {
	case res.Status == sandbox.StatusSuccess:
		return nil
	case res.Status == sandbox.StatusDenied:
		e.Kind, e.Problem = sandbox.ErrDenied, res.Reason
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case res.Resource != "":
		e.Kind, e.Problem = sandbox.ErrExhausted, res.Reason
		e.Hint = "raise the limit in the template's limits: " + string(res.Resource)
	case res.ExitCode != nil:
		e.Problem = fmt.Sprintf("it ended with exit code %d", *res.ExitCode)
		if res.Reason != "" {
			e.Problem += ": " + res.Reason
		}
	default:
		e.Problem = "it ended by " + res.Signal
	}
	return e
}
