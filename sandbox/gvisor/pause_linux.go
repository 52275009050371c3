// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

var _ sandbox.Pauser = (*instance)(nil)

// Pause has gVisor's kernel run no program. It answers questions all the same, and can be
// written down as it stands. Without an owner it goes on by itself.
func (i *instance) Pause(ctx context.Context) error { return i.stand(ctx, protocol.Freeze) }

// Resume has it run them again.
func (i *instance) Resume(ctx context.Context) error { return i.stand(ctx, protocol.Thaw) }

func (i *instance) stand(ctx context.Context, how protocol.CommandKind) error {
	i.pausing.Lock()
	defer i.pausing.Unlock()
	stood := make(chan error, 1)
	i.mu.Lock()
	if i.err != nil {
		defer i.mu.Unlock()
		return i.err
	}
	i.stood = stood
	i.mu.Unlock()
	_ = i.box.shim.command(protocol.Command{Kind: how})
	select {
	case err := <-stood:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stoodError is what came of it: the shim's answer, or the sandbox's end before it.
func stoodError(ev *protocol.Event, end error) error {
	if end != nil {
		return end
	}
	if ev.Error == "" {
		return nil
	}
	return &sandbox.Error{Op: "pause", Kind: sandbox.ErrUnavailable, Problem: ev.Error}
}
