// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// memories are templates in memory: a sandbox of each was made beside those that were asked
// for, has run what its template starts, and was written down, with nothing else in it. New
// sandboxes go on from there. Each is this process's alone: the next one makes them anew, so
// that nothing but this engine on this host ever goes on with one.
type memories struct {
	b  *Sandboxes
	mu sync.Mutex
	of map[string]*memory // by what decides them; see memories.key
	// makes holds an element while one is made.
	makes chan struct{}
}

// memory is one of them. The mu of memories guards it.
type memory struct {
	name   string // of its kept directory; empty while there is none
	seal   *registry.Seal
	making bool
	retry  time.Time // it is not made before, after it could not be
	why    error     // why it could not be made the last time; nil when it could, and before
	used   time.Time
	users  int // that read it now
}

const (
	// maxMemories are kept, those that were used last.
	maxMemories = 16
	// memoryAgain follows a memory that could not be made.
	memoryAgain = 10 * time.Minute
	// warmupLimit is how long what is run before memory is kept may take.
	warmupLimit = 5 * time.Minute
)

func newMemories(b *Sandboxes) *memories {
	return &memories{b: b, of: map[string]*memory{}, makes: make(chan struct{}, 1)}
}

// key names everything that decides what a sandbox of a template has in memory before it is
// anyone's; empty where none is kept: the sandbox has something that is its caller's own.
func (s *memories) key(in *running, rec *Sandbox) string {
	r, img := in.run, in.env.Image
	if img == nil || !img.Built || !in.caps.Snapshot || len(rec.Env) > 0 || !starts(&img.Config) || session.PersistentShape(r).CheckPristine() != nil {
		return ""
	}
	environment := session.EnvironmentDigest(r.Call, &r.Plan, in.caps)
	if environment == "" {
		return ""
	}
	// What a key has built serves that key.
	owner := ""
	if s.b.owns(rec) {
		owner = rec.Owner
	}
	b, err := json.Marshal([]any{owner, in.grant.policy.Digest(), in.grant.options.PolicyName, environment, img.Digest, in.env.Spec.User, in.env.Spec.Sudo, r.Plan.Network, r.Plan.Env})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// owns says whether a sandbox is of a template that its key has built, and not one of the
// operator's. What cannot be found out is its own.
func (b *Sandboxes) owns(rec *Sandbox) bool {
	if !rec.OwnImage || rec.Owner == "" {
		return false
	}
	images, err := b.images()
	if err != nil {
		return true
	}
	ref, err := reference.Parse(rec.Image)
	return err != nil || images.Owns(ref, rec.Owner)
}

// starts says whether a template has anything that is worth keeping in memory.
func starts(c *image.Config) bool { return c.Start != "" || c.Ready != "" || c.Warmup != "" }

// unwarmed is why a sandbox that was just made does not have what the warmup of its template
// does; empty where it has, or there is none.
func (s *memories) unwarmed(in *running, rec *Sandbox) string {
	img := in.env.Image
	if img == nil || img.Config.Warmup == "" || in.warm {
		return ""
	}
	key := s.key(in, rec)
	if key == "" {
		return "no memory of its template is kept for such a sandbox"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.of[key]; m != nil && m.why != nil {
		return m.why.Error()
	}
	return "the memory of its template was not there yet"
}

// take is the memory that a sandbox can go on from, until done; nil where there is none yet.
func (s *memories) take(key string) (m *memory, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m = s.of[key]
	if key == "" || m == nil || m.name == "" {
		return nil, nil
	}
	m.used = s.b.o.Clock.Now()
	m.users++
	return m, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.users--
		s.dropUnused()
	}
}

// spoil forgets a memory that could not be gone on with. It is made anew when it is wanted.
func (s *memories) spoil(key string, m *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[key] == m {
		delete(s.of, key)
		s.of[key+" "+m.name] = m // until none reads it
		m.used = time.Time{}
	}
}

// want has the memory made beside the caller, where it is not there.
func (s *memories) want(key string, in *running, rec *Sandbox) {
	now := s.b.o.Clock.Now()
	s.mu.Lock()
	m := s.of[key]
	if m == nil {
		m = &memory{}
		s.of[key] = m
	}
	begin := key != "" && m.name == "" && !m.making && !m.retry.After(now) && s.b.background.hold()
	m.making = m.making || begin
	m.used = now
	s.mu.Unlock()
	if !begin {
		return
	}
	go func() {
		defer s.b.background.work.Done()
		s.make(key, m, in.grant, rec)
	}()
}

// make makes one.
func (s *memories) make(key string, m *memory, g *grant, rec *Sandbox) {
	b := s.b
	var name string
	var seal *registry.Seal
	err := errors.New("caisson is being stopped")
	select {
	case s.makes <- struct{}{}:
		name, seal, err = (&memoryMaker{b: b, grant: g, rec: rec, key: key}).run(b.background.life)
		<-s.makes
	case <-b.background.life.Done():
	}
	s.mu.Lock()
	m.making, m.why = false, err
	if err == nil {
		m.name, m.seal = name, seal
	} else {
		m.retry = b.o.Clock.Now().Add(memoryAgain)
	}
	s.dropUnused()
	s.mu.Unlock()
	if err != nil && b.background.life.Err() == nil {
		b.o.Notice("sandboxes of " + cmp.Or(rec.Template, rec.Image) + " begin anew, its memory cannot be kept: " + err.Error())
	}
}

// dropUnused removes what is too much, or spoilt, and not read now. The caller holds mu.
func (s *memories) dropUnused() {
	type entry struct {
		key string
		m   *memory
	}
	var all []entry
	for k, m := range s.of {
		all = append(all, entry{k, m})
	}
	slices.SortFunc(all, func(x, y entry) int { return y.m.used.Compare(x.m.used) })
	for i, e := range all {
		if (i >= maxMemories || e.m.used.IsZero()) && !e.m.making && e.m.users == 0 {
			delete(s.of, e.key)
			s.drop(e.m)
		}
	}
}

func (s *memories) drop(m *memory) {
	if err := s.b.kept.drop(m.name); err != nil {
		s.b.o.Notice("the memory of a template could not be removed: " + err.Error())
	}
}

// close removes all.
func (s *memories) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, m := range s.of {
		delete(s.of, key)
		s.drop(m)
	}
}

// startAhead starts a sandbox that is made ahead from its template's memory; nil where there
// is none that is any good, and it is started anew.
func (s *memories) startAhead(ctx context.Context, d sandbox.Driver, in *running) (box sandbox.Instance, ready bool, err error) {
	restorer, ok := d.(sandbox.Restorer)
	key := s.key(in, aheadOf(in.run.Call))
	m, release := s.take(key)
	if !ok || m == nil {
		return nil, false, nil
	}
	defer release()
	from := keptState{s.b.kept.path(m.name), m.seal}
	if err = from.memory(); err == nil {
		box, err = restorer.Restore(ctx, in.env.Spec, from.dir)
	}
	if err == nil {
		return box, true, nil
	}
	if ctx.Err() != nil {
		return nil, false, err
	}
	s.spoil(key, m)
	s.b.o.Notice("the memory of a template is no good: " + err.Error())
	return nil, false, nil
}

// aheadOf is what is known of a sandbox that is made ahead: whose it will be is not.
func aheadOf(c *session.Call) *Sandbox {
	s := &Sandbox{Image: c.Image, OwnImage: c.OwnImage, Owner: c.Account, Actor: c.Actor, Sudo: c.Sudo}
	if c.Operator { // who asks for what no key may
		wishes := c.Call
		s.Wishes = &wishes
	}
	return s
}

// startFrom starts the sandbox from its template's memory, where there is one. What goes wrong
// with that leaves it to be started anew.
func (l locked) startFrom(ctx context.Context, in *running, start func(keptState) error) (done bool, err error) {
	s, rec := l.b.memories, l.record()
	in.memory = s.key(in, rec)
	m, release := s.take(in.memory)
	if m == nil {
		return false, nil
	}
	defer release()
	err = start(keptState{l.b.kept.path(m.name), m.seal})
	if err == nil {
		in.remembers, in.warm = true, true
		return true, nil
	}
	if in.box != nil || ctx.Err() != nil {
		return true, err
	}
	s.spoil(in.memory, m)
	l.b.o.Notice("sandbox " + l.id + " begins anew, the memory of its template is no good: " + err.Error())
	return false, nil
}
