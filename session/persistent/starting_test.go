// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
)

// failing is a level that makes no sandbox.
type failing struct {
	*faketest.Driver
	err error
}

func (f *failing) Start(context.Context, *sandbox.Spec) (sandbox.Instance, error) { return nil, f.err }

// What keeps a sandbox from starting is the host's matter: a client hears what kind of
// thing it is, and the operator hears what it was.
func TestNotStarted(t *testing.T) {
	var mu sync.Mutex
	var notices []string
	level := &failing{}
	h := newHome(t, func(o *SandboxesOptions) {
		level.Driver = o.Drivers["gvisor"].(*faketest.Driver)
		o.Drivers = map[string]sandbox.Driver{"gvisor": level}
		o.Notice = func(s string) { mu.Lock(); defer mu.Unlock(); notices = append(notices, s) }
	})
	for name, c := range map[string]struct {
		err     error
		kind    error
		problem string // what a client is told
		notice  string
	}{
		"late":    {context.DeadlineExceeded, sandbox.ErrUnavailable, "it was not ready within 30s", "context deadline exceeded"},
		"its own": {sandbox.Errorf(sandbox.ErrUnavailable, "start sandbox", "the disk is full"), sandbox.ErrUnavailable, "the disk is full", "the disk is full"},
		"unknown": {errors.New("clone: no space left"), nil, "", "clone: no space left"},
		"asked":   {sandbox.Errorf(sandbox.ErrInvalid, "start sandbox", "there is no such program"), sandbox.ErrInvalid, "there is no such program", ""},
	} {
		level.err, notices = c.err, nil
		_, err := h.Create(t.Context(), h.key, Create{})
		var e *sandbox.Error
		if c.kind != nil && (!errors.Is(err, c.kind) || !errors.As(err, &e) || e.Problem != c.problem) || err == nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(notices, "\n"); !strings.Contains(got, c.notice) || (got == "") != (c.notice == "") {
			t.Errorf("%s: noticed %q", name, got)
		}
	}
}

// What was made for a caller who has gone meanwhile ends, since no caller knows of
// it, and counts for nothing.
func TestNobodyWaits(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	var level *faketest.Driver
	h := newHome(t, func(o *SandboxesOptions) {
		level = o.Drivers["gvisor"].(*faketest.Driver)
		level.Begun = func(*sandbox.Spec, *sandbox.Exec) { leave() } // the fake starts it all the same
	})
	made, err := h.Create(ctx, h.key, Create{})
	if !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v %v", made, err)
	}
	if page, err := h.List(t.Context(), h.key, Filter{}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("%+v %v", page, err)
	}
	if events, _ := h.Events(h.key, 0); len(events) != 0 {
		t.Errorf("%+v", events)
	}
	if n := level.Running(); n != 0 {
		t.Errorf("%d run", n)
	}
}

// copying is a level that tells of each copy before it is made.
type copying struct {
	*meteredLevel
	begun func()
}

func (c *copying) Restore(ctx context.Context, spec *sandbox.Spec, dir string) (sandbox.Instance, error) {
	c.begun()
	return c.meteredLevel.Restore(ctx, spec, dir)
}

// Copies of a sandbox are for their caller. When it has gone before all are made, those
// that run already end, too, and the sandbox goes on.
func TestNobodyWaitsForCopies(t *testing.T) {
	level := &copying{meteredLevel: newMeteredLevel()}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": level} })
	s := h.create(t, Create{})
	ctx, leave := context.WithCancel(t.Context())
	var copies atomic.Int32
	level.begun = func() {
		if copies.Add(1) == 1 {
			return
		}
		for { // until the first copy runs
			events, more := h.Events(h.key, 0)
			if len(events) == 2 {
				break
			}
			<-more
		}
		leave()
	}
	forks, err := h.Handle(h.key, s.ID).Fork(ctx, 2, 0)
	if !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v %v", forks, err)
	}
	if page, err := h.List(t.Context(), h.key, Filter{}); err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != s.ID {
		t.Errorf("%+v %v", page, err)
	}
	if n := level.Running(); n != 1 {
		t.Errorf("%d run", n)
	}
}

// What a frontend has noted with a sandbox, such as that its ports are not for everybody, holds
// for what is made of its snapshots, however that is asked for.
func TestSnapshotsKeepNotes(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": newMeteredLevel()} })
	s := h.create(t, Create{Notes: map[string]string{"e2b.private": "yes", "e2b.mask": "a", "openai.name": "b"}})
	snap, err := h.Handle(h.key, s.ID).Snapshot(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	forks, err := h.Handle(h.key, s.ID).Fork(t.Context(), 1, 0)
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	for what, c := range map[string]struct{ got, want map[string]string }{
		"a fork":                {forks[0].Sandbox.Notes, map[string]string{"e2b.private": "yes", "e2b.mask": "a", "openai.name": "b"}},
		"one that says nothing": {h.create(t, Create{Snapshot: snap.ID}).Notes, map[string]string{"e2b.private": "yes", "e2b.mask": "a"}},
		"one that says else":    {h.create(t, Create{Snapshot: snap.ID, Notes: map[string]string{"e2b.private": ""}}).Notes, map[string]string{"e2b.private": "", "e2b.mask": "a"}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s has %v, want %v", what, c.got, c.want)
		}
	}
}
