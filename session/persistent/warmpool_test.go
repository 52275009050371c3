// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
)

// awaitWarm waits until n sandboxes wait.
func (h *home) awaitWarm(t *testing.T, n int) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		now := h.WarmPool()
		if now.Waiting == n {
			return
		}
		select {
		case <-now.Grown:
		case <-late:
			t.Fatalf("%+v, not %d", now, n)
		}
	}
}

// eachWarm looks at the sandboxes that wait. It takes none.
func (h *home) eachWarm(look func(*warmSandbox)) {
	h.warmPool.Take(func(_ warmKind, m *warmSandbox) bool { look(m); return false })
}

// whereIs is the state directory's name of what a sandbox really is.
func (h *home) whereIs(s *Sandbox) string {
	l := h.inventory.get(s.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.run.ID
}

// A sandbox that was made ahead becomes that of the one who asks: its variables,
// limits and record are as if it had been made then, and it is given out once.
func TestStock(t *testing.T) {
	var mu sync.Mutex
	begun := 0
	h := newHome(t, func(o *SandboxesOptions) {
		o.Ready = 2
		o.Drivers["gvisor"].(*faketest.Driver).Begun = func(*sandbox.Spec, *sandbox.Exec) { mu.Lock(); begun++; mu.Unlock() }
	})
	h.awaitWarm(t, 2)
	other := h.newKey(t, "other")
	var places []string
	for i, k := range []*Key{h.key, other, h.key} {
		s, err := h.Create(t.Context(), k, Create{Env: map[string]string{"WHOSE": k.Name}, Metadata: map[string]string{"a": "b"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := h.WarmPool(); got.Taken != int64(i+1) || got.Missed != 0 {
			t.Errorf("%+v", got)
		}
		places = append(places, h.whereIs(s))
		call := &session.Call{}
		call.Argv = []string{"sh", "-c", "echo $WHOSE; ls /home/user; echo mine > /home/user/mine"}
		r, err := h.Handle(k, s.ID).Exec(t.Context(), call, session.IO{})
		if err != nil || string(r.Stdout) != k.Name+"\n" {
			t.Error(r, err)
		}
		if got, err := h.Handle(k, s.ID).Get(t.Context()); err != nil || got.Isolation != "gvisor" || got.Limits.Memory != LivingLimits().Memory || got.Posture.Limits[sandbox.LimitMemory] == "" {
			t.Errorf("%+v %v", got, err)
		}
		if err := h.Handle(k, s.ID).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.awaitWarm(t, 2)
	}
	slices.Sort(places)
	if len(slices.Compact(places)) != 3 {
		t.Error("one was handed out twice:", places)
	}
	if err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if n := h.driver.(*faketest.Driver).Running(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// Who asks for anything else than the template's defaults gets one of its own, and
// it is what was asked for.
func TestStockIsForDefaults(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) {
		o.Ready = 1
		file, err := policy.Parse("/tight.yaml", []byte("version: 1\nlimits: {memory: 64MiB}\n"))
		if err != nil {
			t.Fatal(err)
		}
		file.Dir = "/"
		o.Policies = map[string]*policy.File{"tight": file}
	})
	h.awaitWarm(t, 1)
	tight, _, err := h.keys.Create(t.Context(), "tight", "tight", "")
	if err != nil {
		t.Fatal(err)
	}
	limits := sandbox.Limits{Memory: 128 << 20, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	for name, c := range map[string]struct {
		key    *Key
		wish   Create
		memory int64
	}{
		"limits":         {h.key, Create{Limits: limits}, 128 << 20},
		"another policy": {tight, Create{}, 64 << 20},
	} {
		s, err := h.Create(t.Context(), c.key, c.wish)
		if err != nil {
			t.Fatal(name, err)
		}
		if s.Limits.Memory != c.memory || h.WarmPool().Taken != 0 {
			t.Errorf("%s: %d bytes, %+v", name, s.Limits.Memory, h.WarmPool())
		}
	}
	h.awaitWarm(t, 2) // one of each kind from now on
	s, err := h.Create(t.Context(), tight, Create{})
	if err != nil || s.Limits.Memory != 64<<20 || h.WarmPool().Taken != 1 {
		t.Error(s, err, h.WarmPool())
	}
}

// unheard is a level that takes a network, and sends nothing over its wire.
type unheard struct{ *faketest.Driver }

func (u unheard) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	c, err := u.Driver.Probe(ctx)
	c.Network, c.Wire = true, sandbox.WirePackets
	return c, err
}

func (u unheard) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	s := *spec
	s.Network = nil
	return u.Driver.Start(ctx, &s)
}

// A sandbox with a network is made ahead as well, and its connections are those of the
// call that it is given to; one whose router is to have secrets is not, and none whose
// network has ended.
func TestStockWithNetwork(t *testing.T) {
	secret := fileWith(t, "secret", "s3cret")
	policies := map[string]*policy.File{}
	for name, text := range map[string]string{
		"net":    "network: {allow: [example.com]}",
		"secret": "network: {allow: [example.com]}\nsecrets:\n  - {name: KEY, from: 'file:" + secret + "', hosts: [example.com], header: Authorization}",
	} {
		f, err := policy.Parse("/"+name+".yaml", []byte("version: 1\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		f.Dir = "/"
		policies[name] = f
	}
	h := newHome(t, func(o *SandboxesOptions) {
		o.Ready, o.Policies = 1, policies
		o.Drivers["gvisor"] = unheard{o.Drivers["gvisor"].(*faketest.Driver)}
	})
	h.awaitWarm(t, 1)
	k, _, err := h.keys.Create(t.Context(), "net", "net", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(t.Context(), k, Create{Network: &NetworkWish{}}); err != nil {
		t.Fatal(err)
	}
	h.awaitWarm(t, 2)
	s, err := h.Create(t.Context(), k, Create{Network: &NetworkWish{}})
	if err != nil || h.WarmPool().Taken != 1 || !s.Wired || !slices.Equal(s.Network, []string{"example.com"}) {
		t.Fatal(s, err, h.WarmPool())
	}
	in := h.inventory.get(s.ID).in
	if of := in.run.Network.Of(); of.Sandbox != s.ID || of.Actor != k.Actor() || of.Call == "" {
		t.Errorf("its connections are recorded as those of %+v", of)
	}
	if _, err := h.Create(t.Context(), k, Create{Network: &NetworkWish{None: true}}); err != nil || h.WarmPool().Taken != 1 {
		t.Error("one without a network:", err, h.WarmPool())
	}
	h.awaitWarm(t, 2)
	h.eachWarm(func(m *warmSandbox) {
		if m.Invocation.Network != nil {
			m.Invocation.Network.Fail(errors.New("as if its router had died"))
		}
	})
	if _, err := h.Create(t.Context(), k, Create{}); err != nil || h.WarmPool().Taken != 1 {
		t.Error("one whose network has ended:", err, h.WarmPool())
	}
	m := &session.Invocation{Session: in.run.Session, Call: &session.Call{}}
	m.Call.Kind = policy.StartSandbox
	g, err := h.grants.of(&Key{Policy: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	m.Plan = g.policy.Decide(&policy.Call{Kind: policy.StartSandbox}).Plan
	if err := session.PersistentShape(m).CheckLasting(); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Error("one with a secret:", m.Plan.Network, err)
	}
}

// One that has died while it waited is not given out.
func TestStockOfTheDead(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) { o.Ready = 1 })
	h.awaitWarm(t, 1)
	var m *warmSandbox
	h.eachWarm(func(one *warmSandbox) { m = one })
	if err := m.box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-m.box.Ended()
	s, err := h.Create(t.Context(), h.key, Create{})
	if err != nil {
		t.Fatal(err)
	}
	if h.whereIs(s) == m.Invocation.ID {
		t.Error("a dead one was handed out")
	}
	call := &session.Call{}
	call.Argv = []string{"true"}
	if r, err := h.Handle(h.key, s.ID).Exec(t.Context(), call, session.IO{}); err != nil || r.Status != sandbox.StatusSuccess || r.Posture.Isolation != "gvisor" || r.Posture.Limits[sandbox.LimitMemory] == "" {
		t.Error(r, err)
	}
}

// Many who ask at once get one each.
func TestStockAtOnce(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) { o.Ready = 3 })
	h.awaitWarm(t, 3)
	var mu sync.Mutex
	places := map[string]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := h.Create(t.Context(), h.key, Create{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if at := h.whereIs(s); places[at] {
				t.Error("two have one:", at)
			} else {
				places[at] = true
			}
		})
	}
	all.Wait()
}

// Why none can be made is said once for each reason, and again when it had passed.
func TestWarmPoolSaysOnce(t *testing.T) {
	said := 0
	p := &warmPool{o: &SandboxesOptions{Notice: func(string) { said++ }}, why: map[warmKind]string{}}
	changing := func(name string) error {
		return &sandbox.Error{Op: "pack root filesystem", Kind: sandbox.ErrUnavailable, Problem: "its files are being changed", Cause: errors.New(name)}
	}
	base, other := warmKind{template: "base"}, warmKind{template: "other"}
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { p.failed(base, changing("a")) }, 1},
		{func() { p.failed(base, changing("b")) }, 1},
		{func() { p.failed(base, errors.New("no kernel")) }, 2},
		{func() { p.failed(other, errors.New("no kernel")) }, 3},
		{func() { p.failed(base, errors.New("no kernel")) }, 3},
		{func() { p.succeeded(base); p.failed(base, errors.New("no kernel")) }, 4},
	} {
		if step.do(); said != step.want {
			t.Errorf("after step %d it was said %d times, not %d", i, said, step.want)
		}
	}
}

// What is known of kinds that never can be made does not grow with what keys ask for.
func TestWarmPoolForgetsWhatFailed(t *testing.T) {
	said := 0
	p := &warmPool{o: &SandboxesOptions{Notice: func(string) { said++ }}, why: map[warmKind]string{}}
	for i := range 10 * maxWhys {
		p.failed(warmKind{template: strconv.Itoa(i)}, errors.New("no kernel"))
		if len(p.why) > maxWhys {
			t.Fatalf("%d are known", len(p.why))
		}
	}
	if said != 10*maxWhys {
		t.Errorf("said %d times", said)
	}
}

// roomless starts nothing.
type roomless struct{ *faketest.Driver }

func (roomless) Start(context.Context, *sandbox.Spec) (sandbox.Instance, error) {
	return nil, errors.New("no room")
}

// The log says what could not be made ahead: of which template, under which policy, on which
// level.
func TestWarmPoolSaysWhatFailed(t *testing.T) {
	said := make(chan string, 1)
	newHome(t, func(o *SandboxesOptions) {
		o.Drivers["gvisor"] = roomless{o.Drivers["gvisor"].(*faketest.Driver)}
		o.Notice = func(s string) {
			select {
			case said <- s:
			default:
			}
		}
		file, err := policy.Parse("/agents.yaml", []byte("version: 1\n"))
		if err != nil {
			t.Fatal(err)
		}
		file.Dir = "/"
		o.Ready, o.Policies = 1, map[string]*policy.File{"": file}
	})
	if got := <-said; !strings.HasPrefix(got, "no sandbox could be made ahead: template base, policy /agents.yaml, level gvisor: ") || !strings.Contains(got, "no room") {
		t.Error(got)
	}
}
