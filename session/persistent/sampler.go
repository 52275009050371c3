// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

const (
	// reportEvery bounds how often a rule that only reports is written down: what
	// runs inside can make it fire with every other sample.
	reportEvery = time.Minute
)

// sampler has the guard of a persistent sandbox read what it uses, while it
// runs. Only its timer's goroutine uses what changes in it.
type sampler struct {
	l        *managed
	in       *running
	guard    *session.Guard
	every    time.Duration
	read     time.Time // when use was last read
	reported map[policy.WatchRule]time.Time
}

// newSampler is nil where nothing depends on what the sandbox uses.
func newSampler(l *managed, in *running) *sampler {
	s := &sampler{l: l, in: in, read: l.b.o.Clock.Now(), reported: map[policy.WatchRule]time.Time{}}
	s.guard = &session.Guard{Limits: in.run.Plan.Limits, Rules: in.run.Plan.Watch, End: in.leave, Report: s.report}
	if s.every = s.guard.Every(); s.every == 0 {
		return nil
	}
	return s
}

// soon sets the timer of the next sample. The caller holds the sandbox's mu.
func (s *sampler) soon() {
	l := s.l
	if l.timers.silent || l.in != s.in || s.in.gone.Err() != nil {
		return
	}
	l.timers.sample = l.b.o.Clock.AfterFunc(s.every, func() {
		if l.b.background.hold() {
			defer l.b.background.work.Done()
			s.sample()
			l.mu.Lock()
			defer l.mu.Unlock()
			s.soon()
		}
	})
}

// sample takes one sample. The guard ends the sandbox if it has to.
func (s *sampler) sample() {
	u, err := s.in.usage(s.l.b.background.life)
	now := s.l.b.o.Clock.Now()
	if err != nil {
		if long := now.Sub(s.read); long >= session.MaxBlind {
			s.in.leave(session.Unreadable(long, err))
		}
		return
	}
	s.read, u.At = now, now
	s.guard.Sample(u)
}

// report writes down that a rule fired that only reports.
func (s *sampler) report(f policy.Fired) {
	if last, ok := s.reported[f.Rule]; ok && f.At.Sub(last) < reportEvery {
		return
	}
	s.reported[f.Rule] = f.At
	b, rec := s.l.b, s.l.record()
	rec.Reason = "watch rule: " + f.String()
	b.events.tell(rec, "watch")
	err := note(b.o.Journal, audit.Intent{Actor: rec.Actor, Account: rec.Owner, Kind: "watch_sandbox", Sandbox: rec.ID, Isolation: rec.Isolation},
		&sandbox.Result{Status: sandbox.StatusSuccess, Reason: rec.Reason, Rule: f.Rule.From})
	if err != nil {
		b.o.Notice("sandbox " + rec.ID + ": " + err.Error())
	}
}

// note records something that happened by itself.
func note(j audit.Journal, in audit.Intent, res *sandbox.Result) error {
	return audit.Perform(context.Background(), j, in, func(context.Context, *audit.Operation) (*sandbox.Result, error) { return res, nil })
}

// usage reads what the sandbox uses. CPU time is that since it was made, pauses
// before this start of it included.
func (in *running) usage(ctx context.Context) (sandbox.Usage, error) {
	u, err := session.ReadUsage(ctx, in.box)
	if err == nil && u.CPU != nil {
		all := in.before + *u.CPU
		in.used.Store(int64(all))
		u.CPU = &all
	}
	return u, err
}

// spent is the CPU time that a sandbox has used since it was made, as far as it is
// known.
func (in *running) spent(ctx context.Context) time.Duration {
	if u, err := in.usage(ctx); err == nil && u.CPU != nil {
		return *u.CPU
	}
	return time.Duration(max(in.used.Load(), int64(in.before)))
}

// watchable refuses rules about what the level does not measure here: they would
// never fire.
func (in *running) watchable(ctx context.Context) error {
	return session.Watchable(ctx, in.run.Call, &in.run.Plan, in.usage)
}

// bound lets a sandbox's time end no later than its wall limit, which counts the
// time that it runs, from when it was made.
func bound(s *registry.Sandbox, now time.Time) {
	if s.Limits.Wall <= 0 {
		return
	}
	if last := now.Add(s.Limits.Wall - s.RanUntil(now)); s.Ends.IsZero() || s.Ends.After(last) {
		s.Ends = last
	}
}

// outlived says whether the wall limit is reached.
func outlived(s *registry.Sandbox, now time.Time) bool {
	return s.Limits.Wall > 0 && s.RanUntil(now) >= s.Limits.Wall
}

// endingOf is the ending that a sandbox has to be left for; nil for any other
// cause, and for none.
func endingOf(in *running) *session.Ending {
	var e *session.Ending
	if in != nil && errors.As(context.Cause(in.gone), &e) {
		return e
	}
	return nil
}
