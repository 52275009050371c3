// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
)

var _ sandbox.ChangeReader = (*instance)(nil)

// layered are the targets of the layers that a machine tells of: over directories that it has
// copy-on-write, and over its root.
func layered(s *sandbox.Spec) (targets []string) {
	if s.Sudo && s.RootChanges {
		targets = append(targets, "/")
	}
	for _, m := range s.Mounts {
		if m.Access == sandbox.CopyOnWrite && m.Dir {
			targets = append(targets, m.Target)
		}
	}
	return targets
}

// ReadChanges has the machine's first process read the layer, piece by piece: a reader that
// takes no more asks for none.
func (i *instance) ReadChanges(ctx context.Context, target string, w io.Writer) (err error) {
	if !slices.Contains(i.layered, target) {
		return sandbox.Errorf(sandbox.ErrInvalid, "read changes", "no directory is mounted copy-on-write at %s", target)
	}
	i.pausing.Lock()
	defer i.pausing.Unlock()
	goOn, err := i.still(ctx)
	if err != nil {
		return untold(err)
	}
	defer func() {
		if again := goOn(); err == nil && again != nil {
			err = untold(again)
		}
	}()
	for order := (boot.Order{Do: boot.Changes, Target: target}); ; order.Target = "" {
		done, err := i.orders.ask(ctx, order)
		if err != nil {
			return untold(err)
		}
		if len(done.Piece) == 0 {
			return nil
		}
		if _, err := w.Write(done.Piece); err != nil {
			return err
		}
	}
}

func untold(err error) error {
	return &sandbox.Error{Op: "read changes", Kind: sandbox.ErrUnavailable, Problem: "the virtual machine does not tell them", Cause: err}
}

// still has the sandbox stand still while the machine's processors run, until goOn is called.
// The caller holds i.pausing. What was begun is undone whatever becomes of ctx: a guest may do
// what it was told after its caller has left, and [instance.Resume] would not know. A machine
// that is not again as it was ends.
func (i *instance) still(ctx context.Context) (goOn func() error, err error) {
	begin := func(ctx context.Context) error { return i.order(ctx, boot.Freeze, i.freezeTime()) }
	undo := func(ctx context.Context) error {
		return i.orders.give(ctx, boot.Order{Do: boot.Resume, Time: time.Now().UnixNano()})
	}
	switch {
	case i.stands && !i.frozen:
		return nil, errors.New("what runs inside does not stand still")
	case i.stands:
		begin, undo = i.monitor.resume, i.monitor.pause
	}
	goOn = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orderTimeout)
		defer cancel()
		err := undo(ctx)
		if err != nil {
			i.box.stop() // it would neither end nor answer
		}
		return err
	}
	if err := begin(ctx); err != nil {
		return nil, errors.Join(err, goOn())
	}
	return goOn, nil
}
