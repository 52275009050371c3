// SPDX-License-Identifier: Apache-2.0

// Package persistent has the sandboxes that go on between calls: [Sandboxes] makes, lists,
// pauses, snapshots, extends and ends them for keys, and runs programs in them. What runs
// goes through package session like everything else.
//
// Lock order: the change of a sandbox, Sandboxes.mu, that sandbox's mu, and last the mu of
// what is kept ready.
package persistent

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/operation"
	"github.com/caisson-run/caisson/session/registry"
)

// Sandbox is one sandbox that lives on, as its owner sees it.
type Sandbox = registry.Sandbox

// Key is who asks for sandboxes.
type Key = registry.Key

// SandboxesOptions are the parts of Sandboxes.
type SandboxesOptions struct {
	// Drivers, Journal and State are those of [Options]. Required.
	Drivers map[string]sandbox.Driver
	Journal operation.Journal
	State   session.State
	// Registry keeps sandboxes and keys. Required; the caller closes it after
	// Sandboxes.
	Registry *registry.DB

	// System bounds every policy. Policies are the operator's files by the names
	// that keys are bound to; the name "" may be missing, and then grants the
	// defaults: no network, no host files.
	System   *policy.File
	Policies map[string]*policy.File
	// Read are other files that were read, and that no code may change.
	Read []sandbox.HostFile
	// Profiles are the limits by the names that keys are bound to; the name ""
	// may be missing, and is DefaultProfile then.
	Profiles map[string]Profile
	// Templates are what sandboxes are made of, by name; "base" may be missing,
	// and is the host's toolchain then.
	Templates map[string]Template

	// Approvals is where people are asked; nil refuses what a policy asks about.
	Approvals *session.Approvals

	// Ready is how many sandboxes of a kind are kept ready, made before they are
	// asked for; 0 is none. See [Sandboxes.WarmPool].
	Ready int

	// Grace is how long sandboxes live on when this process is killed, on levels that
	// can, until the next one takes them over: at most; 0 has them end with it.
	Grace time.Duration
	// Leave has Close let go of such sandboxes instead of writing them down: they run
	// on meanwhile, and end when no other process comes within Grace.
	Leave bool

	// EndLimit is that of [Options]. Close waits for at most a quarter of it once its
	// context has ended.
	EndLimit time.Duration

	// Clock is the time of expiry; the host's when nil.
	Clock Clock
	// Boot is the time that rates go by, the host's since its boot when nil.
	Boot func() registry.Instant
	// EndOnClose has Close end the sandboxes that it could write down.
	EndOnClose bool
	// Private sandboxes are this process's alone: it takes no other's over, another
	// process may have its own in the same state directory, and all end with Close.
	// The registry is this process's alone, too.
	Private bool
	// Notice, when set, is told what nobody waits for: a sandbox that could not
	// be paused, say. It must not block.
	Notice func(string)

	removeAll func(path string) error // os.RemoveAll but in tests
}

// Sandboxes are the sandboxes that live on: made, listed, extended and ended by
// keys, each of which sees its own alone. Another key's sandbox answers as one
// that does not exist.
//
// What runs inside goes the same road as everything else: [Handle.Start]
// decides it by the key's policy and records the intent first.
//
// One process has the sandboxes of a state directory. When it is stopped, those
// that run are written down, where the level can, and go on with the next one;
// others end. When it is killed, those that may (see SandboxesOptions.Grace) run on
// until the next one takes them over, and the level ends the others. The next Open
// says so of each. Paused ones stay.
//
// It may be used from many goroutines. Lock order: a sandbox's change, then
// Sandboxes.mu, then a sandbox's mu.
type Sandboxes struct {
	o      SandboxesOptions
	secret []byte
	claim  session.RunDir

	life     context.Context // of everything that nobody waits for
	finish   context.CancelFunc
	work     sync.WaitGroup
	events   rings
	warmPool *warmPool
	writes   *records // what keys add to the record

	mu     sync.Mutex
	closed bool
	all    map[string]*managed
	grants map[grantName]*grant
	// writing counts snapshots that are being written, by their key.
	writing map[string]int
	// written is how many bytes of snapshots there are, by their key.
	written map[string]int64
	// forgetting stops the timer of the next forget.
	forgetting func() bool
	// sweeping stops the timer of the next sweep.
	sweeping func() bool
	// unowned are the snapshots of nobody that are still there; each sweep's alone.
	unowned []string
}

// OpenSandboxes takes over the sandboxes of a state directory. ErrConflict means
// that another process has them. Sandboxes that ran when their last owner was
// killed are gone, and are said to be.
func OpenSandboxes(ctx context.Context, o SandboxesOptions) (*Sandboxes, error) {
	if len(o.Drivers) == 0 || o.Journal == nil || o.State == nil || o.Registry == nil {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "sandboxes", "they need levels, a journal, a state directory and a registry")
	}
	if o.Clock == nil {
		o.Clock = hostClock{}
	}
	o.EndLimit = cmp.Or(o.EndLimit, session.DefaultEndLimit)
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.removeAll == nil {
		o.removeAll = os.RemoveAll
	}
	writes, err := newRecords(ctx, &o)
	if err != nil {
		return nil, err
	}
	o.Journal = writes
	b := &Sandboxes{o: o, writes: writes, all: map[string]*managed{}, grants: map[grantName]*grant{}, writing: map[string]int{}, written: map[string]int64{}}
	b.life, b.finish = context.WithCancel(context.Background())
	b.warmPool = newWarmPool(b)
	claim := claimName
	if o.Private {
		claim, b.o.EndOnClose, b.o.Grace = registry.NewID(claimName+"_", 20), true, 0
	}
	if b.claim, err = claimAll(ctx, &o, claim); err != nil {
		b.finish()
		return nil, err
	}
	if err := b.recover(ctx); err != nil {
		b.finish()
		return nil, errors.Join(err, b.claim.Remove())
	}
	b.forgetLater()
	b.sweepLater(sweepSoon)
	if o.Ready > 0 {
		if g, err := b.grant(&Key{}); err == nil {
			b.wantWarm(g, BaseTemplate)
		}
	}
	return b, nil
}

// recover reads what the last owner knew.
func (b *Sandboxes) recover(ctx context.Context) error {
	var err error
	if b.secret, err = b.o.Registry.Secret(ctx, "sandbox tokens"); err != nil {
		return err
	}
	now := b.o.Clock.Now()
	if err := b.forget(ctx); err != nil {
		return err
	}
	left, err := b.o.Registry.Left(ctx)
	if err != nil {
		return err
	}
	var orphans, waiting []*managed
	for _, rec := range left {
		l := newManaged(b, rec)
		switch {
		case rec.State == registry.Paused && rec.Kept != "":
		case rec.State == registry.Running && rec.Life != nil && !b.o.Private:
			l.change <- struct{}{} // until it is known whether it lives
			orphans = append(orphans, l)
		default:
			if err := b.lost(ctx, rec, now); err != nil {
				return err
			}
			continue
		}
		b.all[rec.ID] = l
		if rec.Waits {
			waiting = append(waiting, l)
		}
	}
	if b.o.Private {
		return nil // what is kept there is others'
	}
	if err := b.sweepKept(); err != nil {
		return err
	}
	// Last: from here on others change what was read, and nobody waits for them
	// where b does not come to be.
	if len(orphans) > 0 {
		b.work.Go(func() { b.adoptAll(orphans) })
	}
	if len(waiting) > 0 {
		b.work.Go(func() { b.goOnAgain(waiting) })
	}
	return nil
}

// lost says of a sandbox that ran that it is gone: in its row, in the record, and to
// who looks at events.
func (b *Sandboxes) lost(ctx context.Context, rec *registry.Sandbox, now time.Time) error {
	rec.State, rec.EndedAt, rec.Env, rec.Life = registry.Ended, now, nil, nil
	rec.Reason = "caisson was ended while it ran, and it could not live on without it"
	err := b.note(audit.Intent{Actor: rec.Actor, Account: rec.Owner, Kind: "end_sandbox", Sandbox: rec.ID, Isolation: rec.Isolation},
		&sandbox.Result{Status: sandbox.StatusSuccess, Reason: rec.Reason, Posture: rec.Posture})
	if err = errors.Join(err, b.o.Registry.Put(ctx, rec)); err == nil {
		b.tell(rec, "ended")
	}
	return err
}

// Token is a secret of one sandbox for one purpose, 40 hex digits. It is the
// same for as long as the sandbox lives, and is kept nowhere.
func (b *Sandboxes) Token(s *Sandbox, purpose string) string {
	m := hmac.New(sha256.New, b.secret)
	m.Write([]byte(purpose + "\x00" + s.ID))
	return hex.EncodeToString(m.Sum(nil)[:20])
}

// Close writes every running sandbox down, or ends it where that cannot be, and
// lets another process have them. Calls that are under way end with their
// sandboxes; none may follow. What has not ended soon after ctx is an error that names
// it, and is left as it is.
func (b *Sandboxes) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.forgetting()
	b.sweeping()
	var left []*managed
	for _, l := range b.all {
		left = append(left, l)
	}
	b.mu.Unlock()
	b.finish()
	var errs []error
	var mu sync.Mutex
	var ending sync.WaitGroup
	slots := make(chan struct{}, 16)
	pending := make(map[string]bool)
	for _, l := range left {
		l.silence()
		pending[l.id] = true
	}
	for _, l := range left {
		ending.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			err := l.shutDown(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			delete(pending, l.id)
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ending.Wait()
		_ = b.warmPool.Close() // what is left behind was told
		b.work.Wait()
	}()
	late := awaitEnds(ctx, ended, b.o.EndLimit/4)
	mu.Lock()
	defer mu.Unlock()
	if late {
		errs = append(errs, unended(slices.Sorted(maps.Keys(pending))))
	}
	errs = append(errs, b.writes.saveAll(context.WithoutCancel(ctx)))
	return errors.Join(append(errs, b.claim.Remove())...)
}

// awaitEnds waits for ended, and after ctx for limit. It says whether that was not
// enough.
func awaitEnds(ctx context.Context, ended <-chan struct{}, limit time.Duration) (late bool) {
	select {
	case <-ended:
		return false
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return false
	case <-time.After(limit):
		return true
	}
}

// unended is the error for what is left when Close waits no longer.
func unended(ids []string) error {
	what := "calls under way"
	if len(ids) > 0 {
		what = "sandboxes " + strings.Join(ids, ", ")
	}
	return sandbox.Unended("stop", what+" are left")
}

// shutDown ends l if it runs.
func (l *managed) shutDown(ctx context.Context) error {
	if err := l.lock(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	defer l.unlock()
	l.mu.Lock()
	here := l.in != nil || l.frozen != nil
	l.mu.Unlock()
	if !here {
		return nil // it never ran, or is kept on the disk
	}
	if l.stays() {
		return l.letGo(ctx)
	}
	if l.suspends() {
		err := l.suspend(ctx)
		if err == nil || l.state() == registry.Ended {
			return err
		}
	}
	return l.end(ctx, "caisson was stopped")
}

// enter says whether new work may begin.
func (b *Sandboxes) enter() error {
	if b.closed {
		return &sandbox.Error{Op: "sandboxes", Kind: sandbox.ErrUnavailable, Problem: "caisson is being stopped", Hint: "try again in a moment"}
	}
	return nil
}
