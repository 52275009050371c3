// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/warmpool"
)

// warmPool keeps sandboxes ready, whose agents answer and in which nothing has
// run. Each is made as a Create of the same template under the same policy and
// profile would have made it, and becomes the sandbox of one key, for good: none is
// handed out twice, or comes back. A Create that asks for anything else than the
// template's defaults and a part of the policy's network, and one that finds none
// ready, makes its own at once.
//
// What is kept is decided by use: the first kind is made at the start, others when
// they were asked for. While a Create is under way, it has the processors first.
type warmPool struct {
	*warmpool.Pool[warmKind, *warmSandbox]
	b    *Sandboxes
	o    *SandboxesOptions
	made func() // is called when one was

	mu    sync.Mutex
	unfit map[warmKind]bool // whether it cannot be kept, which was said
}

// warmKind is one kind of sandbox that is kept ready.
type warmKind struct {
	grant    *grant
	template string
}

const (
	// maxKinds are kept ready at once, each for kindAge from its last use; one
	// sandbox waits for warmAge at most: it shows the host's toolchain as it was.
	maxKinds = 4
	kindAge  = 15 * time.Minute
	warmAge  = 10 * time.Minute
)

func newWarmPool(b *Sandboxes) *warmPool {
	p := &warmPool{b: b, o: &b.o, made: func() { b.ready.was(nil) }, unfit: map[warmKind]bool{}}
	p.Pool = warmpool.New(b.background.life, warmpool.Options[warmKind, *warmSandbox]{
		Make: p.make,
		Destroy: func(m *warmSandbox) error {
			if err := m.Invocation.Undo.Run(context.Background()); err != nil {
				b.o.Notice("a sandbox that was made ahead could not be taken away: " + err.Error())
			}
			return nil
		},
		Alive:  (*warmSandbox).alive,
		Failed: func(err error) { b.o.Notice("no sandbox could be made ahead: " + err.Error()) },
		Ready:  min(b.o.Ready, session.MaxReady), Age: warmAge, Kinds: maxKinds, KindAge: kindAge,
	})
	return p
}

// want notes that sandboxes of a kind are asked for.
func (p *warmPool) want(g *grant, template string) {
	if k := (warmKind{g, template}); p.o.Ready > 0 && p.fit(k) {
		p.Want(k)
	}
}

// fit says whether sandboxes of a kind can be kept. Where the policy has them made of what may
// change until they are asked for, that is told, once.
func (p *warmPool) fit(k warmKind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	unfit, known := p.unfit[k]
	if known {
		return !unfit
	}
	r := p.call(k)
	v, err := r.Verdict()
	if err != nil || v.Decision != policy.Allow {
		return false // the next one may be another
	}
	r.Plan = v.Plan
	err = session.PersistentShape(r).CheckLasting()
	p.unfit[k] = err != nil
	if err != nil && p.o.Templates[k.template].Image == "" { // else the operator has asked for it with the template
		p.o.Notice("no sandbox is kept ready, each is made when it is asked for: " + err.Error())
	}
	return err == nil
}

// take gives away a sandbox that was made as r's would be, or else one that
// differs in what its network lets through, which it is told when it starts: see
// [session.Invocation.Narrow]. nil when there is none.
func (p *warmPool) take(g *grant, r *session.Invocation) *warmSandbox {
	mine := session.PersistentShape(r)
	of := func(same func(a, b session.Shape) bool) func(warmKind, *warmSandbox) bool {
		return func(k warmKind, m *warmSandbox) bool { return k.grant == g && same(m.Shape, mine) }
	}
	m, _ := p.Take(of(session.Shape.Equals), of(session.Shape.EqualsBeyondRules))
	return m
}

// make makes one sandbox that is kept.
func (p *warmPool) make(ctx context.Context, k warmKind) (*warmSandbox, error) {
	m, err := p.b.makeAhead(ctx, k.grant, p.call(k), session.Shape.CheckLasting)
	if err == nil {
		p.made()
	}
	return m, err
}

// call is what makes a sandbox of a kind.
func (p *warmPool) call(k warmKind) *session.Invocation {
	t := p.o.Templates[k.template]
	call := &session.Call{}
	call.Image, call.Sudo = t.Image, t.Root
	r := &session.Invocation{Session: k.grant.session, Call: call, ID: session.NewID(), Kind: policy.StartSandbox, Origin: session.Origin{Ahead: true}}
	r.OfferRoot()
	return r
}

// WarmPool says how the sandboxes that are made ahead do.
func (b *Sandboxes) WarmPool() warmpool.State { return b.warmPool.State() }
