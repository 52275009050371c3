// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

// begun is the sandbox of a one-shot, which is made while the intent is written
// down. The level is told of no program until both are done, or holds it until then
// (sandbox.Holder), so that nothing of the call's has run when the intent is on the
// disk, or cannot be written.
type begun struct {
	over chan struct{} // closed when it is made, or cannot be
	box  sandbox.Held
	err  error
}

// begin has the level make the sandbox of w beside what comes next, where it can. What
// comes of it is undone with the call.
func (r *run) begin(ctx context.Context, d sandbox.Driver, w *world) {
	begin := making(ctx, d, w)
	if begin == nil || !r.oneshot || r.ready != nil || !r.withoutAgent() {
		return
	}
	b := &begun{over: make(chan struct{})}
	go func() {
		defer close(b.over)
		b.box, b.err = begin()
	}()
	r.begun = b
	r.undo.add(func(ctx context.Context) error {
		<-b.over
		if b.box == nil {
			return nil
		}
		return b.box.Destroy(ctx)
	})
}

// making is how the level makes the sandbox of w without starting its program; nil
// where it does not.
func making(ctx context.Context, d sandbox.Driver, w *world) func() (sandbox.Held, error) {
	switch d := d.(type) {
	case sandbox.BesidePreparer:
		return func() (sandbox.Held, error) {
			p, err := d.Prepare(ctx, w.spec)
			if err != nil {
				return nil, err // no sandbox is not one that is nil
			}
			return p, nil
		}
	case sandbox.Holder:
		return func() (sandbox.Held, error) { return d.Hold(ctx, w.spec, w.exec) }
	}
	return nil
}

// run runs the program in it.
func (b *begun) run(ctx context.Context, ex *sandbox.Exec) (*sandbox.Result, error) {
	<-b.over
	if b.err != nil {
		return nil, b.err
	}
	return b.box.Run(ctx, ex)
}

// withoutAgent says that nothing has to be asked of the sandbox afterwards, and
// nobody sits at it.
func (r *run) withoutAgent() bool { return len(r.plan.Collect) == 0 && r.call.TTY == nil }
