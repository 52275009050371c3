// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
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
	unfit map[warmKind]bool   // whether it cannot be kept, which was said
	why   map[warmKind]string // the last one could not be made, which was said; maxWhys at most
	likes []likeness          // what else is kept; see KeepReady
}

// warmKind is one kind of sandbox that is kept ready.
type warmKind struct {
	grant    *grant
	template string
	owner    string // the key who alone gets one: it is of a template, or a like, of its own; empty: every key's of grant
	like     int    // the place in likes, from 1 on; 0 without
}

const (
	// maxKinds are kept ready at once, each for kindAge from its last use; one
	// sandbox waits for warmAge at most: it shows the host's toolchain as it was.
	maxKinds = 4
	kindAge  = 15 * time.Minute
	warmAge  = 10 * time.Minute
	// maxWhys are known of kinds that could not be made; then they are said anew. Many keys may
	// ask for many templates.
	maxWhys = 64
)

func newWarmPool(b *Sandboxes) *warmPool {
	p := &warmPool{b: b, o: &b.o, made: func() { b.ready.was(nil) }, unfit: map[warmKind]bool{}, why: map[warmKind]string{}}
	p.Pool = warmpool.New(b.background.life, warmpool.Options[warmKind, *warmSandbox]{
		Make: p.make,
		Destroy: func(m *warmSandbox) error {
			if err := m.Invocation.Undo.Run(context.Background()); err != nil {
				b.o.Notice("a sandbox that was made ahead could not be taken away: " + err.Error())
			}
			return nil
		},
		Alive:  (*warmSandbox).alive,
		Failed: p.failed,
		Range:  p.sizes, Age: warmAge, Kinds: maxKinds, KindAge: kindAge,
		MaxMemory: b.o.WarmMemory, Memory: func(m *warmSandbox) int64 { return m.memory },
	})
	return p
}

// want notes that sandboxes of a kind are asked for.
func (p *warmPool) want(k warmKind) {
	if _, limit := p.sizes(k); limit > 0 && p.fit(k) {
		p.Want(k)
	}
}

// begin has those made that are kept from the start, for keys without a policy of their own.
func (p *warmPool) begin() {
	g, err := p.b.grants.of(&Key{})
	if err != nil {
		return // who asks is told
	}
	p.want(warmKind{grant: g, template: BaseTemplate})
	for _, name := range slices.Sorted(maps.Keys(p.o.Warm)) {
		if name == BaseTemplate {
			continue
		}
		k := warmKind{grant: g, template: name}
		if p.want(k); !p.fit(k) {
			p.o.Notice("no sandbox of the template " + name + " is kept ready for keys without a policy: it is not there, or not for them, or has what may change meanwhile (caisson template share)")
		}
	}
}

// sizes are how many of a kind wait: what Warm says of its template, else Ready, and none of
// a template that was built and that no one named there. A key's own are kept by use alone.
func (p *warmPool) sizes(k warmKind) (least, limit int) {
	if k.like > 0 {
		n := p.likeOf(k).ready
		return n, n
	}
	w, named := p.o.Warm[k.template]
	if !named && !p.b.isBuilt(k.template) {
		return min(p.o.Ready, session.MaxReady), min(p.o.Ready, session.MaxReady)
	}
	limit = min(max(w.Min, w.Max), session.MaxReady)
	if k.owner != "" {
		return 0, limit
	}
	return min(w.Min, session.MaxReady), limit
}

// wants says whether a sandbox of a key is one of a kind that may be kept ready: it asks for
// nothing but its template.
func (p *warmPool) wants(c *Create) bool {
	return len(c.Limits.Explicit) == 0 && c.Isolation == "" && len(c.Writable) == 0
}

// kindOf is the kind of a sandbox.
func (p *warmPool) kindOf(g *grant, rec *Sandbox) warmKind {
	k := warmKind{grant: g, template: rec.Template}
	if p.b.isBuilt(rec.Template) && p.b.owns(rec) {
		k.owner = rec.Owner
	}
	return k
}

// serves says whether m, made of the image that a name then meant, can be r's sandbox.
func (p *warmPool) serves(m *warmSandbox, r *session.Invocation, rec *Sandbox) bool {
	img := m.Env.Image
	if img == nil {
		return true
	}
	if len(rec.Env) > 0 && starts(&img.Config) {
		return false // what was started does not have them
	}
	images, err := p.b.images()
	if err != nil {
		return false
	}
	ref, err := reference.Parse(rec.Image)
	if err != nil {
		return false
	}
	now, err := images.Get(context.Background(), ref, image.PullOptions{Owner: rec.Owner})
	return err == nil && now.Digest == img.Digest
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
	r, err := p.call(k)
	if err != nil {
		return false
	}
	v, err := r.Verdict()
	if err != nil || v.Decision != policy.Allow {
		return false // the next one may be another
	}
	r.Plan = v.Plan
	err = p.lasts(k)(session.PersistentShape(r))
	p.unfit[k] = err != nil
	if err != nil && p.o.Templates[k.template].Image == "" { // else the operator has asked for it with the template
		p.o.Notice("no sandbox is kept ready, each is made when it is asked for: " + err.Error())
	}
	return err == nil
}

// lasts is what is against keeping one of a kind ready. Which image a template's name means is
// compared when one is given away.
func (p *warmPool) lasts(k warmKind) func(session.Shape) error {
	if k.like > 0 || p.b.isBuilt(k.template) {
		return session.Shape.CheckPristine
	}
	return session.Shape.CheckLasting
}

// take gives away a sandbox that was made as r's would be, or else one that
// differs in what its network lets through, which it is told when it starts: see
// [session.Invocation.Narrow]. nil when there is none.
func (p *warmPool) take(g *grant, r *session.Invocation, rec *Sandbox) *warmSandbox {
	mine, owner := session.PersistentShape(r), p.kindOf(g, rec).owner
	of := func(same func(a, b session.Shape) bool) func(warmKind, *warmSandbox) bool {
		return func(k warmKind, m *warmSandbox) bool {
			own := k.owner == owner
			if k.like > 0 {
				own = k.owner == rec.Owner
			}
			return k.grant == g && own && same(m.Shape, mine) && p.serves(m, r, rec)
		}
	}
	m, _ := p.Take(of(session.Shape.Equals), of(session.Shape.EqualsBeyondRules))
	return m
}

// make makes one sandbox that is kept.
func (p *warmPool) make(ctx context.Context, k warmKind) (*warmSandbox, error) {
	r, err := p.call(k)
	if err != nil {
		return nil, err
	}
	m, err := p.b.makeAhead(ctx, k.grant, r, p.lasts(k))
	if err != nil {
		return nil, unmade(k, r, err)
	}
	if err := p.b.getReady(ctx, k.grant, m); err != nil {
		return nil, errors.Join(unmade(k, r, err), m.Invocation.Undo.Run(context.WithoutCancel(ctx)))
	}
	if u, err := m.box.Usage(ctx); err == nil && u.Memory != nil {
		m.memory = *u.Memory
	}
	p.made()
	p.succeeded(k)
	return m, nil
}

// failed tells why one of a kind could not be made: once, until one is made or it is for
// another reason. They are tried again and again, at the latest each minute.
func (p *warmPool) failed(k warmKind, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := reason(err); p.why[k] != why {
		if len(p.why) >= maxWhys {
			clear(p.why)
		}
		p.why[k] = why
		p.o.Notice("no sandbox could be made ahead: " + err.Error())
	}
}

// failure says of which kind one could not be made: its template, its policy, and the level
// that this gives.
type failure struct {
	kind  warmKind
	level string // empty: it is not known
	error
}

func (f *failure) Unwrap() error { return f.error }

// Error names the kind before the cause.
func (f *failure) Error() string {
	text := "template " + cmp.Or(f.kind.template, BaseTemplate)
	if f.kind.like > 0 {
		text = "one like another"
	}
	if g := f.kind.grant; g != nil && g.options.PolicyName != "" {
		text += ", policy " + g.options.PolicyName
	}
	if f.level != "" {
		text += ", level " + f.level
	}
	return text + ": " + f.error.Error()
}

// unmade is err with the kind and level of what r was to make.
func unmade(k warmKind, r *session.Invocation, err error) error {
	f := &failure{kind: k, error: err}
	if v, no := r.Verdict(); no == nil {
		f.level = v.Plan.Isolation
	}
	return f
}

// succeeded notes that one of a kind was made.
func (p *warmPool) succeeded(k warmKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.why, k)
}

// reason is what is the same each time that something fails alike: not the names of files that
// it was at.
func reason(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Op + ": " + e.Problem
	}
	return err.Error()
}

// call is what makes a sandbox of a kind.
func (p *warmPool) call(k warmKind) (*session.Invocation, error) {
	if l := p.likeOf(k); k.like > 0 {
		return l.invocation(p.b, k.grant)
	}
	call := &session.Call{}
	if p.b.isBuilt(k.template) {
		images, err := p.b.images()
		if err != nil {
			return nil, err
		}
		ref, err := reference.Parse("template:" + k.template)
		if err != nil {
			return nil, err
		}
		call.Image, call.OwnImage, call.Account = ref.String(), images.MayHave(ref, cmp.Or(k.owner, anyKey)), k.owner
	} else {
		t := p.o.Templates[k.template]
		call.Image, call.Sudo = t.Image, t.Root
	}
	r := &session.Invocation{Session: k.grant.session, Call: call, ID: session.NewID(), Kind: policy.StartSandbox, Origin: session.Origin{Ahead: true, Names: registry.NewNames()}}
	r.OfferRoot()
	return r, nil
}

// anyKey is a key that has no template of its own.
const anyKey = "any"

// WarmPool says how the sandboxes that are made ahead do.
func (b *Sandboxes) WarmPool() warmpool.State { return b.warmPool.State() }
