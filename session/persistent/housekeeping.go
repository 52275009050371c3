// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/session"
)

// It is known of a sandbox for forgetAfter that it has ended, and why, of the last
// maxEnded: some 300 bytes each. What is older is dropped every forgetEvery.
const (
	forgetAfter = 24 * time.Hour
	forgetEvery = time.Hour
	maxEnded    = 100_000
)

// What may still be ending when Sandboxes are opened is passed over, as what lives is:
// an owner may have been killed when it had heard of a sandbox's end and not taken away
// yet what was left, and the sandbox's processes are let go of one after the other. So
// it is looked again after sweepSoon, and after twice as long each time, up to sweepEvery.
const (
	sweepSoon  = time.Second
	sweepEvery = time.Hour
)

// unswept begins a notice.
const unswept = "something that a dead caisson left could not be removed: "

// keepHouse forgets what is too old, drops uploads that are not used and sweeps again, until everything is stopped.
func keepHouse(b *Sandboxes) {
	g := b.background
	g.repeat(b.o.Clock, forgetEvery, func() time.Duration {
		if err := b.o.forget(g.life); err != nil && g.life.Err() == nil {
			b.o.Notice("what is known of sandboxes that have ended could not be dropped: " + err.Error())
		}
		return forgetEvery
	})
	g.repeat(b.o.Clock, dropUploadsEvery, func() time.Duration {
		if err := b.dropUploads(); err != nil {
			b.o.Notice("files that were sent for a build could not be dropped: " + err.Error())
		}
		return dropUploadsEvery
	})
	after := sweepSoon
	g.repeat(b.o.Clock, after, func() time.Duration {
		err := errors.Join(session.Sweep(g.life, b.o.State, b.o.Drivers), b.kept.dropUnowned())
		if err != nil && g.life.Err() == nil {
			b.o.Notice(unswept + err.Error())
		}
		after = min(2*after, sweepEvery)
		return after
	})
}

// forget drops what is too old.
func (o *SandboxesOptions) forget(ctx context.Context) error {
	return o.Registry.Forget(ctx, o.Clock.Now().Add(-forgetAfter), maxEnded)
}
