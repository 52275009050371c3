// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
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
	o *SandboxesOptions
}

// warmKind is one kind of sandbox that is kept ready.
type warmKind struct {
	grant    *grant
	template string
}

// warmSandbox is a sandbox that waits.
type warmSandbox struct {
	*session.Spare
	box    sandbox.Instance
	client *guest.Client
	told   map[string]string // the variables that its agent knows
}

const (
	// maxKinds are kept ready at once, each for kindAge from its last use; one
	// sandbox waits for warmAge at most: it shows the host's toolchain as it was.
	maxKinds = 4
	kindAge  = 15 * time.Minute
	warmAge  = 10 * time.Minute
)

func newWarmPool(b *Sandboxes) *warmPool {
	p := &warmPool{o: &b.o}
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
	if p.o.Templates[template].Image == "" { // an image's name may mean another one tomorrow
		p.Want(warmKind{g, template})
	}
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

func (m *warmSandbox) alive() bool {
	select {
	case <-m.box.Ended():
		return false
	default:
		return m.client.Lost() == nil && m.Invocation.Network.Holds()
	}
}

// make makes one sandbox, as Create would have.
func (p *warmPool) make(ctx context.Context, k warmKind) (_ *warmSandbox, err error) {
	t := p.o.Templates[k.template]
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
		err = session.PersistentShape(r).CheckLasting()
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
	return &warmSandbox{Spare: &session.Spare{Invocation: r, Env: w, Shape: session.PersistentShape(r)}, box: box, client: client, told: in.identity().Env}, nil
}

// WarmPool says how the sandboxes that are made ahead do.
func (b *Sandboxes) WarmPool() warmpool.State { return b.warmPool.State() }
