// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"github.com/caisson-run/caisson/session"
	"time"
)

// What may still be ending when Sandboxes are opened is passed over, as what lives is:
// an owner may have been killed when it had heard of a sandbox's end and not taken away
// yet what was left, and the sandbox's processes are let go of one after the other. So
// it is looked again after sweepSoon, and after twice as long each time, up to sweepEvery.
const (
	sweepSoon  = time.Second
	sweepEvery = time.Hour
)

// sweepLater sweeps again, until everything is being stopped.
func (b *Sandboxes) sweepLater(after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.sweeping = b.o.Clock.AfterFunc(after, func() {
		if !b.hold() {
			return
		}
		defer b.work.Done()
		err := errors.Join(session.Sweep(b.life, b.o.State, b.o.Drivers), b.dropUnowned())
		if err != nil && b.life.Err() == nil {
			b.o.Notice(unswept + err.Error())
		}
		b.sweepLater(min(2*after, sweepEvery))
	})
}

// unswept begins a notice.
const unswept = "something that a dead caisson left could not be removed: "
