// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// warmPool keeps sandboxes ready, whose agents answer and in which nothing has
// run. Each is made as a Create of the same template under the same policy and
// profile would have made it, and becomes the sandbox of one key, for good: none is
// handed out twice, or comes back. A Create that asks for anything else than the
// template's defaults and a part of the policy's network, and one that finds none
// ready, makes its own at once.
//
// What is kept is decided by use: the first kind is made at the start, others when
// they were asked for. Lock order: mu is the last.
type warmPool struct {
	b     *Sandboxes
	ready int // of each kind

	wake   chan struct{}
	makers sync.WaitGroup
	ends   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	busy   int           // Creates under way, which have the processors first
	kinds  []*warmKind   // by last use, latest first
	grown  chan struct{} // closed when another one waits; nil while nobody looks
	state  WarmPoolState
}

// WarmPoolState is how the sandboxes made ahead do.
type WarmPoolState struct {
	Waiting int // sandboxes
	// Grown is closed when another one waits.
	Grown  <-chan struct{}
	Taken  int64 // sandboxes that Creates have got
	Missed int64 // Creates that found none, or wanted another kind
}

// warmKind is one kind of sandbox that is kept ready.
type warmKind struct {
	grant    *grant
	template string
	ready    []*warmSandbox // oldest first
	used     time.Time
	failed   time.Time     // when the last could not be made
	pause    time.Duration // until the next is tried
}

// warmSandbox is a sandbox that waits.
type warmSandbox struct {
	*session.Spare
	box    sandbox.Instance
	client *guest.Client
	told   map[string]string // the variables that its agent knows
	born   time.Time
}

const (
	// maxKinds are kept ready at once, each for kindAge from its last use; one
	// sandbox waits for warmAge at most: it shows the host's toolchain as it was.
	maxKinds = 4
	kindAge  = 15 * time.Minute
	warmAge  = 10 * time.Minute
	// lookEvery is how often it is looked for what is too old.
	lookEvery = 30 * time.Second
)

func newWarmPool(b *Sandboxes, ready int) *warmPool {
	s := &warmPool{b: b, ready: ready, wake: make(chan struct{}, 1)}
	s.makers.Go(s.refill)
	return s
}

// want notes that sandboxes of a kind are asked for.
func (s *warmPool) want(g *grant, template string) {
	if s == nil || s.b.o.Templates[template].Image != "" {
		return // an image's name may mean another one tomorrow
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.kinds, func(k *warmKind) bool { return k.grant == g && k.template == template })
	k := &warmKind{grant: g, template: template}
	if i >= 0 {
		k = s.kinds[i]
		s.kinds = slices.Delete(s.kinds, i, i+1)
	}
	k.used = time.Now()
	s.kinds = slices.Insert(s.kinds, 0, k)
	s.poke()
}

// create notes that somebody waits for a sandbox, until done.
func (s *warmPool) create() (done func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy--; s.busy == 0 {
			s.poke()
		}
	}
}

func (s *warmPool) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take gives away the oldest sandbox that was made as r's would be, or else one that
// differs in what its network lets through, which it is told when it starts: see
// [session.Invocation.Narrow]. nil when there is none.
func (s *warmPool) take(g *grant, r *session.Invocation) *warmSandbox {
	if s == nil {
		return nil
	}
	mine := session.PersistentShape(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, same := range []func(a, b session.Shape) bool{session.Shape.Equals, session.Shape.EqualsBeyondRules} {
		for _, k := range s.kinds {
			for i, m := range k.ready {
				if k.grant == g && m.alive() && same(m.Shape, mine) {
					k.ready = slices.Delete(k.ready, i, i+1)
					s.state.Taken++
					return m
				}
			}
		}
	}
	s.state.Missed++
	return nil
}

func (m *warmSandbox) alive() bool {
	select {
	case <-m.box.Ended():
		return false
	default:
		return m.client.Lost() == nil && m.Invocation.Network.Holds() && time.Since(m.born) < warmAge
	}
}

// refill makes what is missing, one at a time and while nobody waits for a sandbox.
func (s *warmPool) refill() {
	ctx := s.b.life
	for ctx.Err() == nil {
		s.expire()
		k, again := s.next()
		if k != nil {
			m, err := s.make(ctx, k)
			s.add(k, m, err)
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-time.After(again):
		}
	}
}

// next is the kind that lacks one, the latest used first, or when to look again.
func (s *warmPool) next() (*warmKind, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := lookEvery
	if s.busy > 0 {
		return nil, again // the last of them says when it is done
	}
	for _, k := range s.kinds {
		if len(k.ready) >= s.ready {
			continue
		}
		if wait := k.pause - time.Since(k.failed); wait > 0 {
			again = min(again, wait)
			continue
		}
		return k, 0
	}
	return nil, again
}

// expire takes away what is too old or has died.
func (s *warmPool) expire() {
	s.mu.Lock()
	var old []*warmSandbox
	s.kinds = slices.DeleteFunc(s.kinds, func(k *warmKind) bool {
		k.ready = slices.DeleteFunc(k.ready, func(m *warmSandbox) bool {
			if m.alive() {
				return false
			}
			old = append(old, m)
			return true
		})
		return false
	})
	for i := len(s.kinds) - 1; i > 0; i-- { // the latest stays, however old
		if k := s.kinds[i]; i >= maxKinds || time.Since(k.used) > kindAge {
			old = append(old, k.ready...)
			s.kinds = s.kinds[:i]
		}
	}
	s.mu.Unlock()
	for _, m := range old {
		s.ends.Go(func() { s.destroy(m) })
	}
}

func (s *warmPool) add(k *warmKind, m *warmSandbox, err error) {
	s.mu.Lock()
	kept := err == nil && !s.closed && slices.Contains(s.kinds, k)
	switch {
	case err != nil:
		k.failed, k.pause = time.Now(), min(max(2*k.pause, session.FirstRefill), session.LastRefill)
	default:
		k.pause = 0
	}
	if kept {
		if k.ready = append(k.ready, m); s.grown != nil {
			close(s.grown)
			s.grown = nil
		}
	}
	s.mu.Unlock()
	if m != nil && !kept {
		s.destroy(m)
	}
	if err != nil && s.b.life.Err() == nil {
		s.b.o.Notice("no sandbox could be made ahead: " + err.Error())
	}
}

// make makes one sandbox, as Create would have.
func (s *warmPool) make(ctx context.Context, k *warmKind) (_ *warmSandbox, err error) {
	t := s.b.o.Templates[k.template]
	call := &session.Call{}
	call.Image, call.Sudo = t.Image, t.Root
	r := &session.Invocation{Session: k.grant.session, Call: call, ID: session.NewID(), Kind: policy.StartSandbox, Origin: session.Origin{Ahead: true}}
	r.OfferRoot()
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Undo.Run(context.WithoutCancel(ctx)))
		}
	}()
	v, err := r.Verdict()
	if err != nil {
		return nil, err
	}
	if v.Decision != policy.Allow {
		return nil, v.Err()
	}
	r.Plan = v.Plan
	d, _, err := r.Level(ctx)
	if err == nil {
		err = r.CheckLasting()
	}
	if err != nil {
		return nil, err
	}
	w, err := r.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	if r.Network != nil {
		if err := r.Network.Started(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, session.StartAllowance)
	defer cancel()
	box, err := d.Start(ctx, w.Spec)
	if err != nil {
		return nil, session.InTime(err)
	}
	r.Undo.Add(session.WithLimit(k.grant.options.EndLimit, box.Destroy))
	in := &running{run: r, box: box, env: w}
	client, err := in.connect(ctx)
	if err != nil {
		return nil, err
	}
	r.Undo.Add(func(context.Context) error { client.Close(); return nil }) // the box goes next
	return &warmSandbox{Spare: &session.Spare{Invocation: r, Env: w, Shape: session.PersistentShape(r)}, box: box, client: client, told: in.identity().Env, born: time.Now()}, nil
}

func (s *warmPool) destroy(m *warmSandbox) {
	if err := m.Invocation.Undo.Run(context.Background()); err != nil {
		s.b.o.Notice("a sandbox that was made ahead could not be taken away: " + err.Error())
	}
}

// close takes away all that waits. Sandboxes.life has ended.
func (s *warmPool) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.makers.Wait()
	s.mu.Lock()
	kinds := s.kinds
	s.kinds = nil
	s.mu.Unlock()
	for _, k := range kinds {
		for _, m := range k.ready {
			s.ends.Go(func() { s.destroy(m) })
		}
	}
	s.ends.Wait()
}

// WarmPool says how the sandboxes that are made ahead do.
func (b *Sandboxes) WarmPool() WarmPoolState {
	s := b.warmPool
	if s == nil {
		return WarmPoolState{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grown == nil {
		s.grown = make(chan struct{})
	}
	state := s.state
	state.Grown = s.grown
	for _, k := range s.kinds {
		state.Waiting += len(k.ready)
	}
	return state
}
