// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"sync/atomic"

	"github.com/caisson-run/caisson/internal/linux/stdio"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
)

// held is a box whose shim has its order, and waits for the word to start the first
// process. gVisor's kernel is told of it when it is made and begins it later, so that
// all else can be done before.
type held struct {
	box     *box
	streams *stdio.Pipes
	began   atomic.Bool
}

// Hold makes a sandbox whose program is started by Run of what it returns. It
// returns when the shim has been asked for it: how that went is Run's to say.
func (d *Driver) Hold(_ context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (sandbox.Held, error) {
	b, err := d.oneShot(spec, exec)
	if err != nil {
		return nil, err
	}
	h := &held{box: b}
	if h.streams, err = stdio.New(); err == nil {
		b.order.Hold = true
		err = b.give(h.streams.Theirs[0], h.streams.Theirs[1], h.streams.Theirs[2])
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// Run starts the program and follows it to its end.
func (h *held) Run(ctx context.Context, exec *sandbox.Exec) (*sandbox.Result, error) {
	if h.began.Swap(true) {
		return nil, sandbox.Errorf(sandbox.ErrConflict, "run", "this sandbox has had its program")
	}
	defer h.close()
	// A shim that is gone is noticed by who waits for what it says.
	_ = h.box.shim.command(wire.Command{Kind: wire.Begin})
	return h.box.follow(ctx, exec, h.streams)
}

// Destroy takes it away. It may be called at any time but while Run runs.
func (h *held) Destroy(context.Context) error {
	h.close()
	return nil
}

func (h *held) close() {
	h.box.close()
	if h.streams != nil {
		h.streams.Close()
	}
}
