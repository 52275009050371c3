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
// it goes on, and stops the machine's processors. They are stopped too where the guest does
// not do its part.
func (i *instance) Pause(ctx context.Context) error {
	i.pausing.Lock()
	defer i.pausing.Unlock()
	_, err := i.stop(ctx)
	return err
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

// stop stops the machine; unfrozen is why the sandbox does not stand still inside. The
// processors are stopped whatever the guest does within orderTimeout, and when ctx ends, too.
func (i *instance) stop(ctx context.Context) (unfrozen, err error) {
	if !i.stands {
		unfrozen = i.orders.give(ctx, boot.Order{Do: boot.Freeze})
		i.frozen = unfrozen == nil
	}
	i.stands = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), qmpTimeout)
	defer cancel()
	return unfrozen, i.told(i.monitor.pause(ctx))
}

// goOn has the processors go on, and then what the sandbox runs: with the time that it is,
// other random numbers than a copy, and the names of s; nil are those that it has.
func (i *instance) goOn(ctx context.Context, s *sandbox.Spec) error {
	if err := i.told(i.monitor.resume(ctx)); err != nil {
		return err
	}
	entropy := make([]byte, boot.EntropySize)
	rand.Read(entropy)
	o := boot.Order{Do: boot.Resume, Time: time.Now().UnixNano(), Entropy: entropy}
	if s != nil {
		o.Hostname, o.Names = hostname(s), s.NameFiles()
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
