// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// managed is one persistent sandbox, with what this process has of it.
type managed struct {
	names
	b *Sandboxes

	// change holds an element while a call changes what state it is in; see locked.
	change chan struct{}

	mu     sync.Mutex
	rec    *registry.Sandbox // its state is empty until it runs for the first time
	in     *running          // while it runs
	frozen *running          // while it is paused and its memory stays where it is
	quota  quotaMark
	timers timers
	active activity
	failed attempts // to wake it, or to reach its agent
	meter  meter
	log    logbook // has a lock of its own
}

// names are what a sandbox and its key are called. They never change.
type names struct{ id, owner, name string }

// activity is who uses a sandbox.
type activity struct {
	calls int       // under way
	last  time.Time // when the last one began or ended
	busy  time.Time // when something else was last seen to go on; see quiet
	retry time.Time // it is not written away before
}

// attempts are tries that failed.
type attempts struct {
	n    int
	last error // why the last one failed
}

// timers are those of a sandbox, each nil where none is set.
type timers struct {
	silent  bool        // none is set any more
	expiry  func() bool // stops it
	reading func() bool // of the next reading; see meter
	sample  func() bool // of the next sample; see sampler
	cool    func() bool // of the next step to be colder; see cooling
}

// stop stops what would happen by itself.
func (t *timers) stop() {
	for _, stop := range []*func() bool{&t.expiry, &t.reading, &t.sample, &t.cool} {
		if *stop != nil {
			(*stop)()
			*stop = nil
		}
	}
}

func newManaged(b *Sandboxes, rec *registry.Sandbox) *managed {
	l := &managed{names: names{rec.ID, rec.Owner, rec.Name}, b: b, rec: rec, change: make(chan struct{}, 1)}
	l.active.last = b.o.Clock.Now()
	l.meter.l = l
	return l
}

// state is what state it is in; empty until it runs for the first time.
func (l *managed) state() registry.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.State
}

// record is a copy of what is known of it.
func (l *managed) record() *Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := l.rec.Clone()
	rec.Used, rec.Cold = l.active.last, l.cold()
	return rec
}

// gone is the error for a sandbox that ended while a caller waited for it.
func (l *managed) gone() error {
	return sandbox.Errorf(sandbox.ErrNotFound, "sandbox "+l.id, "it has ended: %s", l.record().Reason)
}

// here is the sandbox while it runs or stands still in memory; nil elsewhere.
func (l *managed) here() *running {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in != nil {
		return l.in
	}
	return l.frozen
}

// silence stops its timers for good.
func (l *managed) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timers.silent = true
	l.timers.stop()
}

// watch ends the sandbox when it ends by itself, or something about it has to
// end it.
func (l *managed) watch(in *running) {
	b := l.b
	stop := session.WatchKept(in.run.Made.KeptNames(), in.leave)
	why := &session.Ending{Status: sandbox.StatusSuccess}
	select {
	case <-in.box.Ended():
		why.Reason = "its first process ended"
		if f, ok := in.box.(sandbox.Failer); ok && f.Failure() != nil {
			why = &session.Ending{Status: sandbox.StatusError, Reason: f.Failure().Error()}
		}
		if limit := in.box.Limit(); limit != "" {
			why = session.Exceeded(limit, session.Sentence(limit, in.env.Spec.Limits))
			in.leave(why) // and callers with a program in it learn that
		}
	case <-in.gone.Done():
		why.Reason = context.Cause(in.gone).Error()
	}
	stop()
	ctx := context.Background()
	if context.Cause(in.gone) == errLeft {
		return
	}
	held, err := l.lock(ctx)
	if err != nil {
		return
	}
	defer held.unlock()
	l.mu.Lock()
	left := l.in != in
	l.mu.Unlock()
	if left {
		return // the caller of leave has seen to it
	}
	if err := held.endFor(ctx, why); err != nil {
		b.o.Notice("sandbox " + l.id + ": " + err.Error())
	}
}
