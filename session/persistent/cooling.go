// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// A sandbox that nothing uses goes cold by itself, as its policy says: it stands still, and
// later it is on the disk alone. It runs all the same, for its key, its quota and its time;
// the next request wakes it. It is used while a call, a stream, a terminal or a connection to
// a port is under way, while it has a connection outside, and when it takes 1 % of a
// processor or more between two readings.

const (
	// quietPercent of one processor is too much for a sandbox that nothing uses.
	quietPercent = 1.0
	// coolAgain follows a try to write one down that failed.
	coolAgain = 5 * time.Minute
	// writersAtOnce are written down at once, and wakersAtOnce woken from the disk: more
	// would only wait for each other's processors and disk.
	writersAtOnce = 2
	wakersAtOnce  = 4
)

// freezes and writes say what the sandbox can do of it. One with files of the host's does not
// go to the disk: they may be another's, or others, when it is woken.
func (in *running) freezes() bool {
	_, ok := in.box.(sandbox.Pauser)
	return ok && in.caps.Pause
}

func (in *running) writes() bool {
	_, ok := in.box.(sandbox.Snapshotter)
	p := &in.run.Plan
	return ok && in.freezes() && in.caps.Snapshot && p.Workspace == nil && len(p.Mounts)+len(p.Volumes) == 0
}

// cold is how far it has gone cold. The caller holds mu.
func (l *managed) cold() registry.Coldness {
	switch {
	case l.rec.State != registry.Running || l.in != nil:
		return ""
	case l.frozen != nil:
		return registry.Frozen
	case l.rec.Kept != "":
		return registry.OnDisk
	}
	return ""
}

// nextStep is how it goes colder, and when; nil is not at all. The caller holds mu.
func (l *managed) nextStep() (do func(locked, context.Context) error, at time.Time) {
	in, a := l.in, &l.active
	if in == nil {
		in = l.frozen
	}
	if in == nil || l.rec.State != registry.Running || a.calls > 0 {
		return nil, at
	}
	c, quiet := in.run.Plan.Cooling, a.last
	if a.busy.After(quiet) {
		quiet = a.busy
	}
	switch {
	case c == nil:
	case l.in != nil && c.Freeze > 0 && in.freezes():
		return locked.freeze, quiet.Add(c.Freeze)
	case c.Disk > 0 && in.writes():
		if at = quiet.Add(c.Disk); at.Before(a.retry) {
			at = a.retry
		}
		return locked.putAway, at
	}
	return nil, at
}

// coolLater sets the timer of the next step. The caller holds mu.
func (l *managed) coolLater() {
	t := &l.timers
	if t.cool != nil {
		t.cool()
		t.cool = nil
	}
	if do, at := l.nextStep(); do != nil && !t.silent {
		t.cool = l.b.o.Clock.AfterFunc(max(at.Sub(l.b.o.Clock.Now()), 0), l.coolDown)
	}
}

// coolDown takes the next step, if it is time.
func (l *managed) coolDown() {
	b := l.b
	if !b.background.hold() {
		return
	}
	defer b.background.work.Done()
	held, err := l.lock(b.background.life)
	if err != nil {
		return
	}
	defer held.unlock()
	l.mu.Lock()
	do, at := l.nextStep()
	l.mu.Unlock()
	if do != nil && !at.After(b.o.Clock.Now()) {
		err = do(held, b.background.life)
	}
	if err != nil && b.background.life.Err() == nil {
		b.o.Notice("sandbox " + l.id + " does not go cold: " + err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coolLater()
}

// quiet says whether nothing has gone on in the sandbox since it was last used. What cannot
// be measured is not quiet.
func (l locked) quiet(ctx context.Context, in *running) bool {
	l.meter.read(ctx)
	live, err := in.run.Network.Live(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.active
	busy, measured := live > 0 || err != nil, false
	for _, r := range l.meter.series.since(a.last) {
		if r.CPUPercent == nil || !r.At.After(a.busy) {
			continue
		}
		measured = true
		if *r.CPUPercent >= quietPercent {
			a.busy = r.At
			measured = false
		}
	}
	if busy || !measured {
		a.busy = l.b.o.Clock.Now()
		return false
	}
	c := in.run.Plan.Cooling
	wait := c.Freeze
	if wait == 0 || !in.freezes() {
		wait = c.Disk
	}
	return !a.busy.Add(wait).After(l.b.o.Clock.Now())
}

// stand takes the sandbox away from its users, if there is none just now.
func (l locked) stand(in *running) bool {
	l.mu.Lock()
	if l.active.calls > 0 || l.in != in {
		l.mu.Unlock()
		return false
	}
	l.in, l.frozen = nil, in
	l.timers.stop()
	l.mu.Unlock()
	in.leave(errLeft)
	in.client.Close()
	return true
}

// freeze has a quiet sandbox stand still.
func (l locked) freeze(ctx context.Context) error {
	l.mu.Lock()
	in := l.in
	l.mu.Unlock()
	if in == nil || !l.quiet(ctx, in) || !l.stand(in) {
		return nil
	}
	if err := in.box.(sandbox.Pauser).Pause(ctx); err != nil {
		l.mu.Lock()
		l.active.busy = l.b.o.Clock.Now()
		l.mu.Unlock()
		return errors.Join(err, l.thaw(context.WithoutCancel(ctx)))
	}
	l.arm()
	return nil
}

// thaw has a sandbox go on that stands still. It ends where it does not.
func (l locked) thaw(ctx context.Context) error {
	in, err := l.goOn(ctx, nil, l.record())
	if err == nil {
		l.begin(in)
	}
	return err
}

// warm wakes a sandbox that has gone cold. Others may wait for their turn, as long as ctx
// lasts; once it is woken it is, whether its caller still waits or not.
func (l locked) warm(ctx context.Context, k *Key) error {
	b := l.b
	l.mu.Lock()
	cold := l.cold()
	l.mu.Unlock()
	switch cold {
	case "":
		return nil
	case registry.Frozen:
		return l.thaw(context.WithoutCancel(ctx))
	}
	select {
	case b.wakers <- struct{}{}:
		defer func() { <-b.wakers }()
	case <-ctx.Done():
		return &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrUnavailable, Problem: "others are woken first", Cause: context.Cause(ctx)}
	}
	ctx = context.WithoutCancel(ctx)
	g, err := b.grants.of(k)
	if err != nil {
		return err
	}
	rec := l.record()
	in, err := l.goOn(ctx, g, rec)
	if err != nil {
		return err
	}
	err = l.keep(ctx, func(s *registry.Sandbox) {
		in.wokenAs(s)
		bound(s, b.o.Clock.Now())
	})
	if err != nil {
		return errors.Join(err, in.close(ctx)) // what it was is still there
	}
	l.begin(in)
	l.tellRebooted()
	return b.kept.drop(rec.Kept)
}

// wokenAs notes in the record what the sandbox is that goes on from the disk.
func (in *running) wokenAs(s *registry.Sandbox) {
	s.Kept, s.Seal, s.Boots, s.Life = "", nil, false, in.life()
	s.Placeholders = maps.Clone(in.run.Placeholders())
	s.Limits = in.run.Plan.Limits // decided anew where it was booted anew
	s.Rebooted, s.ImageDigest = in.rebooted, in.imageDigest()
}

// imageDigest is of the image that it runs on; empty without one.
func (in *running) imageDigest() string {
	if in.env == nil || in.env.Image == nil {
		return ""
	}
	return in.env.Image.Digest
}

// beganAnew is what is said of a sandbox whose memory did not fit, before why.
const beganAnew = "it began anew with its files: "

// tellRebooted tells its key and the operator that a sandbox began anew.
func (l locked) tellRebooted() {
	rec := l.record()
	if rec.Rebooted == "" {
		return
	}
	rec.Reason = beganAnew + rec.Rebooted
	l.b.events.tell(rec, "rebooted")
	l.b.o.Notice("sandbox " + l.id + ": " + rec.Reason)
}

// awake wakes a sandbox that has gone cold, for what its owner wants of it.
func (l locked) awake(ctx context.Context) error {
	l.mu.Lock()
	cold := l.cold()
	l.mu.Unlock()
	if cold == "" {
		return nil
	}
	k, err := l.ownerOf(ctx)
	if err == nil {
		err = l.warm(ctx, k)
	}
	return err
}
