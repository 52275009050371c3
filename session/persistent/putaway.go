// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// putAway writes a quiet sandbox to the disk, where no process of it is left. It stands
// still meanwhile, and goes on where that fails.
func (l locked) putAway(ctx context.Context) error {
	b := l.b
	select {
	case b.writers <- struct{}{}:
		defer func() { <-b.writers }()
	default:
		return l.putOff(time.Second) // its callers do not wait for others' disks
	}
	l.mu.Lock()
	in := l.in
	l.mu.Unlock()
	if in != nil {
		if !l.quiet(ctx, in) || !l.stand(in) {
			return nil
		}
		if err := in.box.(sandbox.Pauser).Pause(ctx); err != nil {
			return errors.Join(err, l.putOff(coolAgain), l.thaw(context.WithoutCancel(ctx)))
		}
		l.arm()
	}
	if err := l.writeAway(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, l.putOff(coolAgain))
	}
	return nil
}

// putOff puts the next try off.
func (l locked) putOff(d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.retry = l.b.o.Clock.Now().Add(d)
	return nil
}

// writeAway writes down a sandbox that stands still. After an error it stands still as before.
func (l locked) writeAway(ctx context.Context) error {
	b := l.b
	l.mu.Lock()
	in := l.frozen
	l.mu.Unlock()
	rec := l.record()
	intent := audit.Intent{Actor: rec.Actor, Account: l.owner, Kind: "cool_sandbox", Sandbox: l.id, Isolation: rec.Isolation}
	return audit.Perform(ctx, b.o.Journal, intent, func(ctx context.Context, _ *audit.Operation) (*sandbox.Result, error) {
		fits := func(s *registry.Seal) error { return b.inventory.keptRoom(l.managed, in.grant.profile.Quota, s.Bytes) }
		undone, err := l.toDisk(ctx, in, fits, func(s *registry.Sandbox) { s.CPU, s.Life = in.spent(ctx), nil })
		if err != nil {
			return nil, err
		}
		if undone != nil {
			b.o.Notice("sandbox " + l.id + " has gone cold, and not all of it was taken away: " + undone.Error())
		}
		return &sandbox.Result{Status: sandbox.StatusSuccess, Reason: "nothing used it"}, nil
	})
}
