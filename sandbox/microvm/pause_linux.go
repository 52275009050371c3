// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
)

var _ sandbox.Pauser = (*instance)(nil)

// Pause has the sandbox stand still inside, so that its clock is right before anything of
// it goes on, and stops the machine's processors: whatever the guest does in its time, and
// when ctx ends, too.
func (i *instance) Pause(ctx context.Context) error {
	i.pausing.Lock()
	defer i.pausing.Unlock()
	if !i.stands {
		_ = i.freeze(ctx)
	}
	return i.halt(ctx)
}

// Resume lets all go on.
func (i *instance) Resume(ctx context.Context) error {
	i.pausing.Lock()
	defer i.pausing.Unlock()
	if !i.stands {
		return nil
	}
	return i.goOn(ctx, nil)
}

// How long a guest may take until what the sandbox runs stands still, and how much longer
// where its processor is emulated.
const (
	freezeTimeout = 10 * time.Second
	emulatedTimes = 4
)

// freezeTime is how long a guest may take for that.
func (i *instance) freezeTime() time.Duration {
	if i.emulated {
		return freezeTimeout * emulatedTimes
	}
	return freezeTimeout
}

// freeze has what the sandbox runs stand still, and says why where it does not.
func (i *instance) freeze(ctx context.Context) error {
	err := i.order(ctx, boot.Freeze, i.freezeTime())
	i.stands, i.frozen, i.flushed = true, err == nil, false
	return err
}

// order has the guest do something within a time. One that does not answer has a quarter of it
// on top.
func (i *instance) order(ctx context.Context, do string, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within+within/4, errOrderTimeout)
	defer cancel()
	return i.orders.give(ctx, boot.Order{Do: do, Within: within})
}

// halt stops the processors.
func (i *instance) halt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), qmpTimeout)
	defer cancel()
	return i.told(i.monitor.pause(ctx))
}

// goOn has the processors go on, and then what the sandbox runs: with the time that it is,
// other random numbers than a copy, and the names of s, whose network is another. With nil it
// has the names and the network of before.
func (i *instance) goOn(ctx context.Context, s *sandbox.Spec) error {
	i.flushed = false
	if err := i.told(i.monitor.resume(ctx)); err != nil {
		return err
	}
	entropy := make([]byte, boot.EntropySize)
	rand.Read(entropy)
	o := boot.Order{Do: boot.Resume, Time: time.Now().UnixNano(), Entropy: entropy}
	if s != nil {
		o.Hostname, o.Names, o.Moved = hostname(s), s.NameFiles(), true
	}
	err := i.orders.give(ctx, o)
	if err == nil {
		err = i.monitor.reach(ctx)
	}
	if err != nil {
		return &sandbox.Error{Op: "sandbox " + i.id, Kind: sandbox.ErrUnavailable, Problem: "the machine does not go on", Cause: err}
	}
	i.stands, i.frozen = false, false
	return nil
}
