// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// suspends says whether a sandbox that runs outlives a caisson that is stopped.
func (l *managed) suspends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in == nil || l.b.o.EndOnClose {
		return false
	}
	_, ok := l.in.box.(sandbox.Snapshotter)
	return ok && l.in.caps.Snapshot
}

// suspend writes a running sandbox down for the next caisson. The caller holds
// change.
func (l *managed) suspend(ctx context.Context) error {
	l.mu.Lock()
	l.rec.Waits = true
	l.mu.Unlock()
	if err := l.pause(ctx, registry.Pause, "caisson was stopped"); err != nil {
		l.mu.Lock()
		l.rec.Waits = false
		l.mu.Unlock()
		return err
	}
	return nil
}

// goOnWith resumes one of them. One that cannot go on stays paused: whoever made
// it decides.
func (l *managed) goOnWith() {
	b := l.b
	ctx := b.background.life
	if l.lock(ctx) != nil {
		return
	}
	defer l.unlock()
	if l.state() != registry.Paused {
		return
	}
	k, err := l.ownerOf(ctx)
	if err == nil {
		err = l.wake(ctx, k, false)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	b.o.Notice("sandbox " + l.id + " stays paused: " + err.Error())
	if err := l.keep(ctx, func(s *registry.Sandbox) { s.Waits = false }); err != nil {
		b.o.Notice("sandbox " + l.id + ": " + err.Error())
	}
}
