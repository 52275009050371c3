// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"time"
)

// It is known of a sandbox for forgetAfter that it has ended, and why, of the last
// maxEnded: some 300 bytes each. What is older is dropped every forgetEvery.
const (
	forgetAfter = 24 * time.Hour
	forgetEvery = time.Hour
	maxEnded    = 100_000
)

// forget drops what is too old.
func (b *Sandboxes) forget(ctx context.Context) error {
	return b.o.Registry.Forget(ctx, b.o.Clock.Now().Add(-forgetAfter), maxEnded)
}

// forgetLater does it again, until everything is being stopped.
func (b *Sandboxes) forgetLater() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.forgetting = b.o.Clock.AfterFunc(forgetEvery, func() {
		if !b.hold() {
			return
		}
		defer b.work.Done()
		if err := b.forget(b.life); err != nil && b.life.Err() == nil {
			b.o.Notice("what is known of sandboxes that have ended could not be dropped: " + err.Error())
		}
		b.forgetLater()
	})
}
