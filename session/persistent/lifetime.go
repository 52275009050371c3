// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// SetTimeout gives a running sandbox d from now on, which may be less than it
// had; 0 ends its time at once. A paused one gets it when it is resumed.
func (h *Handle) SetTimeout(ctx context.Context, d time.Duration) (*Sandbox, error) {
	return h.change(ctx, func(l locked) error {
		if d == 0 {
			return l.prolong(ctx, 0, false)
		}
		return l.prolongFor(ctx, h.key, d, false)
	})
}

// Extend gives a running sandbox at least d from now on and never shortens its
// time; 0 is the profile's.
func (h *Handle) Extend(ctx context.Context, d time.Duration) (*Sandbox, error) {
	return h.change(ctx, func(l locked) error { return l.prolongFor(ctx, h.key, d, true) })
}

// prolongFor gives a sandbox the time that its key may have of what it wants.
func (l locked) prolongFor(ctx context.Context, k *Key, want time.Duration, extend bool) error {
	g, err := l.b.grants.of(k)
	if err != nil {
		return err
	}
	d, err := g.profile.lifetime(want)
	if err != nil {
		return err
	}
	return l.prolong(ctx, d, extend)
}

// prolong gives a sandbox that has not ended d from now on. With extend it never shortens its
// time.
func (l locked) prolong(ctx context.Context, d time.Duration, extend bool) error {
	b := l.b
	rec := l.record()
	ends := b.o.Clock.Now().Add(d)
	if extend && rec.State == registry.Running && !ends.After(rec.Ends) {
		return nil
	}
	err := l.keep(ctx, func(s *registry.Sandbox) {
		if d > 0 { // else it would be paused again as soon as it is woken
			s.Lifetime = d
		}
		if s.State == registry.Running {
			s.Ends = ends
			bound(s, b.o.Clock.Now())
		}
	})
	if err != nil {
		return err
	}
	l.survive()
	l.arm()
	return nil
}

// due is when its time is over: zero is never. The caller holds mu.
func (l *managed) due() time.Time {
	if l.rec.State != registry.Running {
		return time.Time{}
	}
	due := l.rec.Ends
	if l.rec.Idle > 0 && l.active.calls == 0 {
		if idle := l.active.last.Add(l.rec.Idle); due.IsZero() || idle.Before(due) {
			due = idle
		}
	}
	return due
}

// arm sets its timer anew.
func (l *managed) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.timers
	if t.expiry != nil {
		t.expiry()
		t.expiry = nil
	}
	due := l.due()
	if due.IsZero() || t.silent {
		return
	}
	t.expiry = l.b.o.Clock.AfterFunc(max(due.Sub(l.b.o.Clock.Now()), 0), l.expire)
}

// expire does what is to happen when its time is over, if it is.
func (l *managed) expire() {
	b := l.b
	if !b.background.hold() {
		return // Close ends it
	}
	defer b.background.work.Done()
	held, err := l.lock(b.background.life)
	if err != nil {
		return
	}
	defer held.unlock()
	l.mu.Lock()
	due, rec := l.due(), l.rec
	idle := due.Before(rec.Ends)
	l.mu.Unlock()
	if due.IsZero() {
		return
	}
	now := b.o.Clock.Now()
	if due.After(now) { // it was used or extended meanwhile
		l.arm()
		return
	}
	ctx := context.Background()
	if outlived(rec, now) { // it could never go on
		if err := held.endFor(ctx, session.TimedOut(rec.Limits)); err != nil {
			b.o.Notice("sandbox " + l.id + ": " + err.Error())
		}
		return
	}
	reason := fmt.Sprintf("its time of %s was over", rec.Lifetime)
	if idle {
		reason = fmt.Sprintf("it went unused for %s", rec.Idle)
	}
	if rec.OnTimeout != registry.Kill {
		err := held.pause(ctx, rec.OnTimeout, reason)
		if err == nil {
			return
		}
		reason += ", and it could not be paused: " + err.Error()
		b.o.Notice("sandbox " + l.id + ": " + reason)
	}
	if err := held.end(ctx, reason); err != nil {
		b.o.Notice("sandbox " + l.id + ": " + err.Error())
	}
}
