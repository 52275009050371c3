// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

// besideDriver is what a driver implements whose sandboxes cost no more when they are
// made before their program is known: the process level.
type besideDriver interface {
	sandbox.Preparer
	Beside()
}

// begun is the sandbox of a one-shot, which is made while the intent is written
// down. The level is told of no program until both are done, so that nothing of the
// call's has run when the intent is on the disk, or cannot be written.
type begun struct {
	over chan struct{} // closed when it is made, or cannot be
	box  sandbox.Prepared
	err  error
}

// begin has the level make the sandbox of w beside what comes next, where it can. What
// comes of it is undone with the call.
func (r *run) begin(ctx context.Context, d sandbox.Driver, w *world) {
	p, ok := d.(besideDriver)
	if !ok || !r.oneshot || r.ready != nil || !r.withoutAgent() {
		return
	}
	b := &begun{over: make(chan struct{})}
	go func() {
		defer close(b.over)
		b.box, b.err = p.Prepare(ctx, w.spec)
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
