// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session/registry"
)

// watched is a level that says when it is asked to resume a sandbox and to reach
// its agent, which may never answer.
type watched struct {
	*faketest.Driver
	resumed func()
	dialled func(ctx context.Context) error
}

func (w *watched) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := w.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &watchedBox{box, box.(sandbox.Pauser), w}, nil
}

type watchedBox struct {
	sandbox.Instance
	pauser sandbox.Pauser
	w      *watched
}

func (b *watchedBox) Pause(ctx context.Context) error { return b.pauser.Pause(ctx) }

func (b *watchedBox) Resume(ctx context.Context) error {
	if f := b.w.resumed; f != nil {
		f()
	}
	return b.pauser.Resume(ctx)
}

func (b *watchedBox) Dial(ctx context.Context) (net.Conn, error) {
	if f := b.w.dialled; f != nil {
		if err := f(ctx); err != nil {
			return nil, err
		}
	}
	return b.Instance.Dial(ctx)
}

func watchedHome(t *testing.T, quota Quota) (*home, *watched) {
	w := &watched{Driver: &faketest.Driver{Agent: true}}
	p := DefaultProfile()
	p.Quota = quota
	h := newHome(t, func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": w}
		o.Profiles = map[string]Profile{"": p}
	})
	return h, w
}

// A client that wakes a sandbox and goes away does not end it. Any client that
// knows a public port may do that.
func TestWakerGoesAway(t *testing.T) {
	h, w := watchedHome(t, Quota{})
	s := h.create(t, Create{Lifetime: Lifetime{AutoResume: true}})
	h.sh(t, s.ID, "echo here >/tmp/kept")
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	visitor, leave := context.WithCancel(t.Context())
	w.resumed = leave
	if _, left, err := h.Handle(h.key, s.ID).Enter(visitor); err == nil {
		left()
	}
	if got, err := h.Handle(h.key, s.ID).Get(t.Context()); err != nil || got.State != registry.Running {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := h.sh(t, s.ID, "cat /tmp/kept"); got != "here\n" {
		t.Errorf("%q", got)
	}
}

// Two that are resumed at once get no more places than there are.
func TestQuotaOfWaking(t *testing.T) {
	h, w := watchedHome(t, Quota{Sandboxes: 1})
	var all []string
	for range 2 {
		s := h.create(t, Create{})
		if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		all = append(all, s.ID)
	}
	w.resumed = func() {
		w.resumed = nil
		if _, err := h.Handle(h.key, all[1]).Resume(t.Context(), 0); !errors.Is(err, sandbox.ErrExhausted) {
			t.Errorf("a second one, while the first is being resumed: %v", err)
		}
	}
	if _, err := h.Handle(h.key, all[0]).Resume(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// A pause that cannot be written down leaves a sandbox that runs and whose time
// passes, not one that cannot be woken and never ends.
func TestPauseThatCannotBeKept(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Minute}})
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.dir.Path(), "registry.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	change := func(line string) {
		if _, err := db.Exec(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, on := range []string{"INSERT", "UPDATE"} {
		change("CREATE TRIGGER full_" + on + " BEFORE " + on + " ON sandboxes BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
	}
	if got, err := h.Handle(h.key, s.ID).Pause(t.Context()); err == nil {
		t.Fatal("paused", got)
	}
	for _, on := range []string{"INSERT", "UPDATE"} {
		change("DROP TRIGGER full_" + on)
	}
	if got := h.sh(t, s.ID, "echo on"); got != "on\n" {
		t.Error(got)
	}
	h.clock.move(2 * time.Minute)
	if got, err := h.Handle(h.key, s.ID).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("its time is over, and it is there: %+v, %v", got, err)
	}
}

// An agent that never answers again does not keep its sandbox from being ended,
// however many callers wait. Each try has a timeout, and one try is for all of
// them.
func TestSilentAgent(t *testing.T) {
	h, w := watchedHome(t, Quota{})
	s := h.create(t, Create{})
	l, err := h.Handle(h.key, s.ID).find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	silence := errors.New("no answer")
	trying, give := make(chan struct{}), make(chan struct{})
	var tries atomic.Int32
	w.dialled = func(ctx context.Context) error {
		if tries.Add(1) == 1 {
			close(trying)
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a session is begun that nobody gives up")
		}
		<-give
		return silence
	}
	l.in.client.Close() // the agent had it cut
	var callers sync.WaitGroup
	ask := func(seen func()) {
		if _, _, err := h.Handle(h.key, s.ID).Enter(&noticed{Context: t.Context(), seen: sync.OnceFunc(seen)}); !errors.Is(err, silence) {
			t.Error(err)
		}
	}
	callers.Go(func() { ask(func() {}) })
	<-trying
	var waiting sync.WaitGroup
	for range 10 {
		waiting.Add(1)
		callers.Go(func() { ask(waiting.Done) })
	}
	waiting.Wait()
	close(give)
	callers.Wait()
	if n := tries.Load(); n != 1 {
		t.Errorf("it was tried %d times in turn", n)
	}
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// noticed says when a caller is about to wait for it.
type noticed struct {
	context.Context
	seen func()
}

func (n *noticed) Done() <-chan struct{} { n.seen(); return n.Context.Done() }
