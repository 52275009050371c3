// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/operation"
	"github.com/caisson-run/caisson/session/registry"
)

// managed is one persistent sandbox, with what this process has of it.
type managed struct {
	b               *Sandboxes
	id, owner, name string

	// change holds an element while somebody changes what state it is in: makes
	// it, ends it. It is taken with lock.
	change chan struct{}

	mu       sync.Mutex
	rec      *registry.Sandbox // its state is empty until it runs for the first time
	reserved sandbox.Limits    // counts for the quota until then
	in       *running          // while it runs
	frozen   *running          // while it is paused and its memory stays where it is
	alarm    func() bool       // stops the timer of its expiry
	silent   bool              // no timer is set any more
	pausing  bool              // it has a place among the paused ones
	waking   bool              // it has a place among those that run
	tries    int               // how often it could not be woken or reached
	tried    error             // why not, the last time
	busy     int               // actions under way
	used     time.Time         // when the last one began or ended
	readings series
	log      logbook     // has a lock of its own
	reading  func() bool // stops the timer of the next reading
	sampling func() bool // stops the timer of the next sample; see sampler
}

// running is a sandbox that runs, from its start to its end or its pause.
type running struct {
	run    *session.Invocation // what undoes it
	box    sandbox.Instance
	client *guest.Client // the sandbox's mu guards it, once that has it
	env    *environment.Environment
	grant  *grant
	made   *warmSandbox // the one made ahead that it was; nil without
	caps   sandbox.Capabilities
	before time.Duration // CPU time that it used in its life before this start
	used   *atomic.Int64 // ns of CPU time in its whole life, when it was last read
	// gone ends when it is left, and before that with the reason why it has to be.
	gone  context.Context
	leave context.CancelCauseFunc
}

func newManaged(b *Sandboxes, rec *registry.Sandbox) *managed {
	return &managed{b: b, id: rec.ID, owner: rec.Owner, name: rec.Name, rec: rec, change: make(chan struct{}, 1), used: b.o.Clock.Now()}
}

// lock waits until nobody else changes the sandbox's state, or ctx ends.
func (l *managed) lock(ctx context.Context) error {
	select {
	case l.change <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &sandbox.Error{Op: "sandbox " + l.id, Kind: sandbox.ErrUnavailable, Problem: "it is being changed by another call", Cause: context.Cause(ctx)}
	}
}

func (l *managed) unlock() { <-l.change }

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
	rec.Used = l.used
	return rec
}

// gone is the error for a sandbox that ended while somebody waited for it.
func (l *managed) gone() error {
	return sandbox.Errorf(sandbox.ErrNotFound, "sandbox "+l.id, "it has ended: %s", l.record().Reason)
}

// silence stops its timer for good.
func (l *managed) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
	l.stopTimers()
}

// stopTimers stops what would happen by itself. The caller holds mu.
func (l *managed) stopTimers() {
	for _, stop := range []*func() bool{&l.alarm, &l.reading, &l.sampling} {
		if *stop != nil {
			(*stop)()
			*stop = nil
		}
	}
}

// keep changes the record, in the registry first. The caller holds change.
func (l *managed) keep(ctx context.Context, change func(*registry.Sandbox)) error {
	rec := l.record()
	change(rec)
	if err := l.b.o.Registry.Put(context.WithoutCancel(ctx), rec); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rec = rec
	return nil
}

// boot makes the sandbox's environment and starts it, or has it go on where it was
// written down in the directory kept. What it makes is undone when it fails, and a
// refusal is an error of kind ErrDenied.
func (l *managed) boot(ctx context.Context, g *grant, r *session.Invocation, kept string) (*running, *session.Admission, error) {
	b := l.b
	in := &running{run: r, grant: g, before: l.record().CPU, used: new(atomic.Int64)}
	if kept == "" {
		r.Spares = func(r *session.Invocation) *session.Spare {
			if in.made = b.takeWarm(g, r); in.made == nil {
				return nil
			}
			return in.made.Spare
		}
	}
	in.gone, in.leave = context.WithCancelCause(context.Background())
	a, res, err := r.Admit(ctx)
	if a != nil {
		in.env, in.caps = a.Env, r.Caps
		if err = in.start(ctx, a.Driver, kept); err == nil {
			err = awaited(ctx)
		}
		end := &sandbox.Result{Status: sandbox.StatusSuccess, Posture: a.Posture}
		if err != nil {
			end = nil
		}
		// Nobody gets a sandbox whose making could not be recorded.
		err = errors.Join(err, a.Operation.End(ctx, r.Outcome(end, err)))
	} else if err == nil {
		err = session.Denied("create sandbox", res)
	}
	if err != nil {
		err = errors.Join(err, in.close(ctx))
		if session.OfHost(err) && ctx.Err() == nil {
			b.o.Notice("sandbox " + l.id + " was not started: " + err.Error())
		}
		return nil, nil, err
	}
	return in, a, nil
}

// awaited refuses what was started for somebody who has gone meanwhile: it would run
// on, and count for their quota, without anybody who has been told of it.
func awaited(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &sandbox.Error{Op: "create sandbox", Kind: sandbox.ErrUnavailable, Problem: "nobody waits for it any more", Cause: context.Cause(ctx)}
}

// close ends it, and undoes what it was made of. Nobody uses it any more.
func (in *running) close(ctx context.Context) error {
	in.leave(errLeft)
	if in.client != nil {
		in.client.Close()
	}
	return in.run.Undo.Run(ctx)
}

// start has the level make the sandbox, and waits until its agent answers.
func (in *running) start(ctx context.Context, d sandbox.Driver, kept string) (err error) {
	r := in.run
	r.MayHaveRun()
	ctx, cancel := context.WithTimeout(ctx, session.StartAllowance)
	defer cancel()
	defer func() { err = session.InTime(err) }()
	if r.Network != nil {
		if err := r.AwaitRouter(ctx); err != nil {
			return err
		}
		go session.WatchNetwork(in.gone, r.Network, in.leave)
	}
	if m := in.made; m != nil { // it runs, and its agent answers
		in.box, in.client = m.box, m.client
		if err := r.Narrow(ctx, m.Spare); err != nil {
			return err
		}
		if id := in.identity(); !maps.Equal(id.Env, m.told) {
			if _, err := in.client.Resume(ctx, id); err != nil {
				return err
			}
		}
		return in.watchable(ctx)
	}
	make := d.Start
	if kept != "" {
		restorer, ok := d.(sandbox.Restorer)
		if !ok {
			return cannotPause(d.Name())
		}
		make = func(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
			return restorer.Restore(ctx, spec, kept)
		}
	}
	box, err := make(ctx, in.env.Spec)
	if err != nil {
		return err
	}
	in.box = box
	r.Undo.Add(session.WithLimit(in.grant.options.EndLimit, box.Destroy))
	if in.client, err = in.connect(ctx); err != nil {
		return err
	}
	return in.watchable(ctx)
}

// connect begins a session with the agent. Whoever has the agent's place inside
// may never answer, and the caller may hold the sandbox's change: it has a time.
func (in *running) connect(ctx context.Context) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.StartAllowance)
	defer cancel()
	conn, err := in.box.Dial(ctx)
	if err != nil {
		return nil, err
	}
	spec := in.env.Spec
	client, err := guest.NewClient(conn, guest.Options{User: spec.User, Limits: spec.Limits, NewPrivileges: spec.Sudo})
	if err != nil {
		return nil, err
	}
	// It answers now, and knows what it is: also when it is a copy of another.
	if _, err = client.Resume(ctx, in.identity()); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// reconnect begins another session with the agent of a sandbox that runs, when
// the one before was lost: it was cut because the agent flooded it, say. The
// caller holds change.
func (l *managed) reconnect(ctx context.Context) error {
	l.mu.Lock()
	in := l.in
	lost := in != nil && in.client.Lost() != nil
	l.mu.Unlock()
	if !lost {
		return nil
	}
	client, err := in.connect(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	in.client.Close()
	in.client = client
	return nil
}

// identity is what the agent is told about its sandbox. Whose home it is, and
// what they are called, it knows of each user itself.
func (in *running) identity() guest.Resume {
	env := map[string]string{}
	for _, e := range in.env.Exec.Env {
		if name, value, _ := strings.Cut(e, "="); name != "HOME" && name != "USER" && name != "LOGNAME" {
			env[name] = value
		}
	}
	dir := in.env.Dir
	if dir == in.env.Spec.User.Home {
		dir = ""
	}
	return guest.Resume{Env: env, Dir: &dir}
}

// begin lets a sandbox that was started go on by itself. The caller holds change.
func (l *managed) begin(in *running) {
	b := l.b
	l.mu.Lock()
	l.in, l.used = in, b.o.Clock.Now()
	l.readSoon()
	if s := newSampler(l, in); s != nil {
		s.soon()
	}
	l.mu.Unlock()
	b.background.work.Go(func() { l.watch(in) })
	l.survive()
	l.arm()
}

// watch ends the sandbox when it ends by itself, or something about it has to
// end it.
func (l *managed) watch(in *running) {
	b := l.b
	stop := session.WatchKept(in.run.KeptNames(), in.leave)
	why := &session.Ending{Status: sandbox.StatusSuccess}
	select {
	case <-in.box.Ended():
		why.Reason = "its first process ended"
		if limit := in.box.Limit(); limit != "" {
			why = session.Exceeded(limit, session.Sentence(limit, in.env.Spec.Limits))
			in.leave(why) // and whoever runs something in it learns that
		}
	case <-in.gone.Done():
		why.Reason = context.Cause(in.gone).Error()
	}
	stop()
	ctx := context.Background()
	if context.Cause(in.gone) == errLeft || l.lock(ctx) != nil {
		return
	}
	defer l.unlock()
	l.mu.Lock()
	left := l.in != in
	l.mu.Unlock()
	if left {
		return // whoever left it has seen to it
	}
	if err := l.endFor(ctx, why); err != nil {
		b.o.Notice("sandbox " + l.id + ": " + err.Error())
	}
}

// errLeft is why a sandbox is gone that somebody ended or paused.
var errLeft = errors.New("the sandbox was ended or paused")

// end ends a sandbox for a reason that is no limit's; see endFor.
func (l *managed) end(ctx context.Context, reason string) error {
	return l.endFor(ctx, &session.Ending{Status: sandbox.StatusSuccess, Reason: reason})
}

// endFor ends a sandbox and takes it from the list. The caller holds change. It is
// gone and said to be, whatever the error is about. Where a limit or a rule had
// ended it already, that is why, whoever comes first.
func (l *managed) endFor(ctx context.Context, why *session.Ending) error {
	b := l.b
	ctx = context.WithoutCancel(ctx)
	l.silence()
	l.mu.Lock()
	in, was := l.in, l.rec
	if in == nil {
		in = l.frozen
	}
	l.in, l.frozen = nil, nil
	l.mu.Unlock()
	if e := endingOf(in); e != nil {
		why = e
	}
	reason := why.Reason
	// A full disk must not keep a sandbox alive: what cannot be recorded, although it
	// may spend the reserve, is told.
	op, err := operation.Begin(ctx, b.o.Journal, audit.Intent{Actor: was.Actor, Account: was.Owner, Kind: "end_sandbox", Sandbox: l.id, Isolation: was.Isolation, Ends: true})
	res := &sandbox.Result{Status: why.Status, Resource: why.Resource, Rule: why.Rule, Reason: reason, Posture: was.Posture}
	errs := []error{err}
	if in != nil {
		errs = append(errs, in.close(ctx))
		res.Network, res.Findings = in.run.Traffic(), in.run.Found().Findings
		l.tellFound(in.run.Found())
	}
	now := b.o.Clock.Now()
	errs = append(errs, l.keep(ctx, func(s *registry.Sandbox) {
		s.State, s.EndedAt, s.Reason, s.Env, s.Life = registry.Ended, now, reason, nil, nil
	}))
	if l.state() != registry.Ended { // the registry could not be written
		l.mu.Lock()
		l.rec.State, l.rec.EndedAt, l.rec.Reason, l.rec.Env = registry.Ended, now, reason, nil
		l.mu.Unlock()
	}
	errs = append(errs, b.kept.drop(was.Kept))
	b.inventory.remove(l)
	if op != nil {
		errs = append(errs, op.End(ctx, audit.Outcome{Status: audit.Allowed, Result: session.ForRecord(res)}))
	}
	b.events.tell(l.record(), "ended")
	return errors.Join(errs...)
}

// tellFound says what was found where it has lived, to whoever runs caisson.
func (l *managed) tellFound(found *environment.Found) {
	for _, f := range found.Findings {
		l.b.o.Notice("sandbox " + l.id + ": finding: " + sandbox.Quoted(f.Text) + ": " + f.Problem)
	}
}
