// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// Create says what sandbox is wanted. The zero value is one of the template
// base, as the key's policy has it, that is killed when its time is over.
type Create struct {
	// Door is where the request came in: "e2b".
	Frontend string

	// Template names what it is made of; empty is "base".
	Template string
	// Snapshot, when not empty, is the ID of a snapshot that it goes on from, with
	// that one's environment; Env comes on top of its variables.
	Snapshot string
	// Metadata are the caller's own words. They decide nothing.
	Metadata map[string]string
	// Notes are the frontend's own, and come back with the sandbox. With Snapshot they come
	// on top of that one's PortNotes.
	Notes map[string]string
	// Env are variables that every program in it gets. They are in no record,
	// list or log.
	Env map[string]string

	// Timeout is how long it lives, unless it is extended; 0 is the profile's, and
	// Longest the longest that its key may have. A wall limit ends it earlier, however often it is extended.
	Timeout time.Duration
	// Idle, when not 0, ends it earlier when it goes unused for so long: when no
	// action begins, ends or is under way.
	Idle time.Duration
	// OnTimeout is what happens then; empty is registry.Kill.
	OnTimeout registry.Action
	// AutoResume wakes it when something in it is asked for while it is paused.
	AutoResume bool

	// Network changes what the key's policy grants; nil takes that.
	Network *NetworkWish
	// Writable are directories, absolute and inside, that it has besides those of
	// the policy, where that lets it: private, empty at first.
	Writable []string
	// Limits tighten those of the key; a field counts when Explicit names it.
	Limits sandbox.Limits
	// Isolation names the level; empty is the policy's.
	Isolation string
}

// PortNotes begins the names of notes about ports, of the frontend that serves them: they
// hold for what is made of a snapshot, too, through whichever frontend.
const PortNotes = "e2b."

// NetworkWish asks for a part of what a policy grants.
type NetworkWish struct {
	// None is no network at all.
	None bool
	// Allow are entries of an allow-list, each within the policy's; empty is all
	// of that. Deny are taken away from it. See egress/rule.
	Allow, Deny []string
}

// Template is what sandboxes are made of. The operator names it.
type Template struct {
	// Image is a container image; empty is the host's toolchain.
	Image string
	// Root lets programs become the sandbox's own root, where the key's policy
	// allows root and the level has one that is not the host's. Elsewhere the
	// sandbox is made without, and a program that is to be root is refused.
	Root bool
}

// BaseTemplate is what a sandbox is made of that names no template.
const BaseTemplate = "base"

// Templates are the names of those that there are, sorted.
func (b *Sandboxes) Templates() []string {
	names := slices.Sorted(maps.Keys(b.o.Templates))
	if at, found := slices.BinarySearch(names, BaseTemplate); !found {
		names = slices.Insert(names, at, BaseTemplate)
	}
	return names
}

// Bounds of what a caller may have kept.
const (
	maxMetadata  = 64
	maxWords     = 16 << 10 // bytes of all metadata
	maxVariables = 256 << 10
	maxName      = 256
)

// check refuses what cannot be meant.
func (c *Create) check() error {
	invalid := func(op, problem, hint string) error {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	size := func(m map[string]string) (n int) {
		for k, v := range m {
			n += len(k) + len(v)
		}
		return n
	}
	switch {
	case len(c.Metadata) > maxMetadata || size(c.Metadata) > maxWords:
		return invalid("metadata", fmt.Sprintf("it has more than %d entries or %s", maxMetadata, session.Size(maxWords)), "keep large things in files of the sandbox")
	case size(c.Env) > maxVariables:
		return invalid("variables", "they are longer than "+session.Size(maxVariables)+" together", "write them into a file of the sandbox")
	case c.Idle < 0:
		return invalid("idle", "it is negative", "")
	case !slices.Contains([]registry.Action{"", registry.Kill, registry.Pause, registry.PauseFiles}, c.OnTimeout):
		return invalid("on timeout", fmt.Sprintf("%q is not known", sandbox.Clip(string(c.OnTimeout), 32)), "use kill, pause or pause-files")
	case c.OnTimeout == registry.PauseFiles && c.AutoResume:
		return invalid("on timeout", "what was paused without its memory does not wake by itself: whoever asked would meet nothing that runs", "leave auto-resume out, or keep the memory")
	}
	return nil
}

// callFor is what is asked for with a sandbox, as the pipeline has it.
func callFor(s *registry.Sandbox) *session.Call {
	c := &session.Call{Account: s.Owner}
	c.Actor, c.Env, c.Image, c.Limits, c.Isolation = s.Actor, s.Env, s.Image, s.Asked, s.Isolation
	c.Network, c.NetworkDeny, c.NoNetwork, c.Writable = s.Allow, s.Deny, s.NoNetwork, s.Writable
	c.Sudo = s.Sudo
	return c
}

// Create makes a sandbox and starts it. It is the key's alone.
//
// Errors: ErrInvalid for what cannot be meant, ErrNotFound for a template that
// is not there, ErrDenied with the rule that refuses it, ErrExhausted for a
// quota, ErrUnsupported for what the level cannot do.
func (b *Sandboxes) Create(ctx context.Context, k *Key, c Create) (*Sandbox, error) {
	return b.create(ctx, k, "", c)
}

func (b *Sandboxes) create(ctx context.Context, k *Key, name string, c Create) (*Sandbox, error) {
	if c.Snapshot == "" {
		return b.createFrom(ctx, k, name, c, nil)
	}
	s, err := b.o.Registry.GetSnapshot(ctx, k.ID, c.Snapshot)
	if err != nil {
		return nil, err
	}
	return b.createFrom(ctx, k, name, c, s)
}

// wanted is a new sandbox's record.
func (b *Sandboxes) wanted(k *Key, name string, c *Create, lifetime time.Duration, from *Snapshot) (*registry.Sandbox, error) {
	rec := &registry.Sandbox{Template: c.Template, Env: c.Env, Isolation: c.Isolation, Asked: c.Limits, Writable: c.Writable}
	if w := c.Network; w != nil {
		rec.Allow, rec.Deny, rec.NoNetwork = w.Allow, w.Deny, w.None
	}
	if from != nil {
		var err error
		if rec, err = c.from(from); err != nil {
			return nil, err
		}
	}
	rec.ID, rec.Owner, rec.Actor, rec.Name, rec.Metadata = registry.NewID("i", 20), k.ID, k.Actor(), name, c.Metadata
	rec.Lifetime, rec.Idle, rec.AutoResume = lifetime, c.Idle, c.AutoResume
	rec.Notes = c.Notes
	if from != nil { // whom its ports let in, they let in as before, unless the caller says otherwise
		rec.Notes = map[string]string{}
		for name, note := range from.Sandbox.Notes {
			if strings.HasPrefix(name, PortNotes) {
				rec.Notes[name] = note
			}
		}
		maps.Copy(rec.Notes, c.Notes)
	}
	rec.OnTimeout = cmp.Or(c.OnTimeout, registry.Kill)
	rec.Template = cmp.Or(rec.Template, BaseTemplate)
	if from == nil {
		t, ok := b.o.Templates[rec.Template]
		if !ok && rec.Template != BaseTemplate {
			return nil, &sandbox.Error{Op: "template " + sandbox.Quoted(sandbox.Clip(rec.Template, maxName)), Kind: sandbox.ErrNotFound, Problem: "there is none", Hint: "take " + BaseTemplate}
		}
		rec.Image, rec.Sudo = t.Image, t.Root
	}
	return rec.Clone(), nil // the maps are the caller's
}

// createFrom makes a sandbox, of a snapshot where from is not nil.
func (b *Sandboxes) createFrom(ctx context.Context, k *Key, name string, c Create, from *Snapshot) (*Sandbox, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	g, err := b.grant(k)
	if err != nil {
		return nil, err
	}
	lifetime, err := g.profile.lifetime(c.Timeout)
	if err != nil {
		return nil, err
	}
	rec, err := b.wanted(k, name, &c, lifetime, from)
	if err != nil {
		return nil, err
	}
	kept := ""
	if from != nil {
		kept = b.keptPath(from.Kept)
	}
	defer b.warmPool.Hold()()
	call := callFor(rec)
	call.Frontend = c.Frontend
	r := g.starting(rec, call)
	if from == nil {
		r.OfferRoot()
		if len(c.Limits.Explicit) == 0 && c.Isolation == "" && len(c.Writable) == 0 {
			b.wantWarm(g, rec.Template)
		}
	}
	l, err := b.reserve(g, rec, r)
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	in, a, err := l.boot(ctx, g, r, kept)
	if err == nil {
		if err = in.canPause(rec.OnTimeout); err != nil {
			err = errors.Join(err, in.close(ctx))
		}
	}
	if err != nil {
		b.drop(l)
		return nil, err
	}
	err = l.keep(ctx, func(s *registry.Sandbox) {
		now := b.o.Clock.Now()
		s.State, s.Created, s.Started, s.Began, s.Ends = registry.Running, now, now, now, now.Add(s.Lifetime)
		s.Isolation, s.Limits, s.Posture = a.Posture.Isolation, in.run.Plan.Limits, a.Posture
		s.Sudo = in.env.Spec.Sudo
		bound(s, now)
		s.Wired, s.Network, s.Denied, s.Life = in.run.Network != nil, in.run.Hosts, in.run.Denied, in.life()
		s.Placeholders = maps.Clone(in.run.Placeholders())
	})
	if err != nil {
		b.drop(l)
		return nil, errors.Join(err, in.close(ctx))
	}
	l.begin(in)
	rec = l.record()
	b.tell(rec, "created")
	return rec, nil
}

// starting is the call that starts the sandbox of rec.
func (g *grant) starting(rec *registry.Sandbox, call *session.Call) *session.Invocation {
	return &session.Invocation{Session: g.session, Call: call, ID: session.NewID(), Kind: policy.StartSandbox, Name: rec.ID, Origin: session.Origin{Reach: rec.Reach, Known: rec.Placeholders}}
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
	b.work.Go(func() { l.watch(in) })
	l.survive()
	l.arm()
}

// reserve takes a place for the sandbox of a call; its change is held.
func (b *Sandboxes) reserve(g *grant, rec *registry.Sandbox, r *session.Invocation) (*managed, error) {
	l := newManaged(b, rec)
	v, _ := r.Verdict()        // what goes wrong goes wrong in admit
	l.reserved = v.Plan.Limits // none where it will be refused
	l.change <- struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.enter(); err != nil {
		return nil, err
	}
	if rec.Name != "" && b.namedLocked(rec.Owner, rec.Name) != nil {
		return nil, errNameTaken
	}
	if err := l.fits(g.profile.Quota, l.reserved, registry.Running); err != nil {
		return nil, err
	}
	b.all[l.id] = l
	return l, nil
}

// drop gives the place back.
func (b *Sandboxes) drop(l *managed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, l.id)
}
