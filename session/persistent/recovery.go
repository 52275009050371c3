// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// recovery takes over what the last owner of a state directory left.
type recovery struct {
	b       *Sandboxes
	orphans []locked   // ran when it was killed, and may still
	waiting []*managed // were written down when it was stopped, and go on
}

// run reads what the last owner knew, and has what can go on do so in the background.
func (r *recovery) run(ctx context.Context) error {
	b := r.b
	if err := b.o.forget(ctx); err != nil {
		return err
	}
	if err := r.read(ctx); err != nil {
		return err
	}
	if b.o.Private {
		return nil // what is kept there is others'
	}
	if err := r.sweep(ctx); err != nil {
		return err
	}
	// Last: from here on others change what was read, and they are not waited
	// for where opening fails.
	if len(r.orphans) > 0 {
		b.background.work.Go(r.adopt)
	}
	if len(r.waiting) > 0 {
		b.background.work.Go(r.resume)
	}
	return nil
}

// read reads which sandboxes there are. Those that cannot go on have ended.
func (r *recovery) read(ctx context.Context) error {
	b := r.b
	now := b.o.Clock.Now()
	left, err := b.o.Registry.Left(ctx)
	if err != nil {
		return err
	}
	for _, rec := range left {
		if last := now.Add(rec.Lifetime); rec.State == registry.Running && rec.Lifetime > 0 && rec.Ends.After(last) {
			rec.Ends = last // the host's clock was set back meanwhile
		}
		l := newLocked(b, rec)
		switch {
		case rec.State == registry.Paused && rec.Kept != "":
			l.unlock()
		case rec.State == registry.Running && rec.Kept != "" && !b.o.Private: // it has gone cold
			l.unlock()
		case rec.State == registry.Running && rec.Life != nil && !b.o.Private:
			r.orphans = append(r.orphans, l) // locked until it is known whether it lives
		default:
			if err := r.lost(ctx, rec, now); err != nil {
				return err
			}
			continue
		}
		b.inventory.put(l.managed)
		if rec.State == registry.Running && rec.Kept != "" {
			l.arm() // its time has gone on
		}
		if rec.Waits {
			r.waiting = append(r.waiting, l.managed)
		}
	}
	return nil
}

// lost says of a sandbox that ran that it is gone: in its row, in the record, and to
// who looks at events.
func (r *recovery) lost(ctx context.Context, rec *registry.Sandbox, now time.Time) error {
	b := r.b
	rec.HideHeaders()
	rec.State, rec.EndedAt, rec.Env, rec.Life = registry.Ended, now, nil, nil
	rec.Reason = "caisson was ended while it ran, and it could not run on without it"
	err := note(b.o.Journal, audit.Intent{Actor: rec.Actor, Account: rec.Owner, Kind: "end_sandbox", Sandbox: rec.ID, Isolation: rec.Isolation},
		&sandbox.Result{Status: sandbox.StatusSuccess, Reason: rec.Reason, Posture: rec.Posture})
	if err = errors.Join(err, b.o.Registry.Put(ctx, rec)); err == nil {
		b.events.tell(rec, "ended")
	}
	return err
}

// sweep counts the snapshots that there are, and removes those without an owner.
func (r *recovery) sweep(ctx context.Context) error {
	b := r.b
	used := map[string]bool{}
	for _, l := range b.inventory.list() {
		used[l.record().Kept] = true
	}
	snapshots, err := b.o.Registry.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	for _, s := range snapshots {
		used[s.Kept] = true
		if s.Bytes == 0 { // from before it was written down
			s.Bytes, _ = b.kept.size(s.Kept)
		}
		if err := b.inventory.takeRoom(s, Quota{}); err != nil {
			return err
		}
	}
	err = b.kept.find(used)
	if left := b.kept.dropUnowned(); left != nil {
		b.o.Notice(unswept + left.Error())
	}
	return err
}

const (
	// adoptAtOnce and resumeAtOnce are how many sandboxes are taken over, and resumed, at once.
	adoptAtOnce  = 8
	resumeAtOnce = 4
)

// adopt takes over the sandboxes that ran when the last caisson ended. Who asks for one of
// them waits meanwhile.
func (r *recovery) adopt() {
	each(r.orphans, adoptAtOnce, func(l locked) {
		defer l.unlock()
		(&adoption{l: l, rec: l.record()}).run(r.b.background.life)
	})
}

// resume resumes the sandboxes that the last caisson wrote down when it was stopped.
func (r *recovery) resume() { each(r.waiting, resumeAtOnce, r.resumeOne) }

// resumeOne resumes one of them. One that cannot go on stays paused: its maker
// decides.
func (r *recovery) resumeOne(waiting *managed) {
	b := r.b
	ctx := b.background.life
	l, err := waiting.lock(ctx)
	if err != nil {
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

// each has do be called of each sandbox, of some at once.
func each[T any](list []T, atOnce int, do func(T)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, l := range list {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(l)
		})
	}
	all.Wait()
}
