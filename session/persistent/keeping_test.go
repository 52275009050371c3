// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session/registry"
)

func TestPauseAndResume(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Minute, OnTimeout: registry.Pause}})
	h.sh(t, s.ID, "echo kept > ~/file")
	in, leave, err := h.Handle(h.key, s.ID).Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leave()
	h.clock.move(time.Minute)
	<-in.Gone
	if got, err := h.Handle(h.key, s.ID).Get(t.Context()); err != nil || got.State != registry.Paused {
		t.Fatalf("when its time was over: %v, %v", got, err)
	}
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("paused twice: %v", err)
	}
	if _, _, err := h.Handle(h.key, s.ID).Enter(t.Context()); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("asked while it is paused: %v", err)
	}
	h.clock.move(time.Hour) // its time does not run
	got, resumed, err := h.Handle(h.key, s.ID).Connect(t.Context(), 2*time.Minute)
	if err != nil || !resumed || got.State != registry.Running || got.Ends.Sub(h.clock.Now()) != 2*time.Minute || got.Resumed != 1 {
		t.Fatalf("resumed: %+v, %t, %v", got, resumed, err)
	}
	if got := h.sh(t, s.ID, "cat ~/file"); got != "kept\n" {
		t.Errorf("its file has %q", got)
	}
	if _, err := h.Handle(h.key, s.ID).Resume(t.Context(), 0); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("resumed while it runs: %v", err)
	}
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Errorf("killed while it is paused: %v", err)
	}

	// One that wants to is woken by who asks something of it.
	s = h.create(t, Create{Lifetime: Lifetime{AutoResume: true}})
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.sh(t, s.ID, "echo awake"); got != "awake\n" {
		t.Errorf("woken it says %q", got)
	}
	// Its memory is caisson's: it ends with it, and is said to.
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSandboxes(t.Context(), h.o); !errors.Is(err, sandbox.ErrConflict) {
		t.Fatalf("a second owner: %v", err)
	}
	token := h.Token(s, "access")
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.open(t, nil)
	if _, err := h.Handle(h.key, s.ID).Get(t.Context()); err == nil || !strings.Contains(err.Error(), "caisson was stopped") {
		t.Errorf("after a restart: %v", err)
	}
	if h.Token(s, "access") != token || h.Token(s, "traffic") == token {
		t.Error("tokens do not keep, or are not each their own")
	}
}

// writer is a level whose snapshots are empty files.
type writer struct{ *faketest.Driver }

func (w writer) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := w.Driver.Start(ctx, spec)
	return written{box, box.(sandbox.Pauser)}, err
}

type written struct {
	sandbox.Instance
	sandbox.Pauser
}

func (written) Snapshot(context.Context, string, bool) error { return nil }

// restless is a level whose sandboxes cannot be written down as they are, and go on.
type restless struct{ *faketest.Driver }

func (w restless) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := w.Driver.Start(ctx, spec)
	return restlessBox{box}, err
}

type restlessBox struct{ sandbox.Instance }

func (restlessBox) Pause(context.Context) error  { return nil }
func (restlessBox) Resume(context.Context) error { return nil }
func (b restlessBox) Snapshot(ctx context.Context, dir string, end bool) error {
	return b.SnapshotFiles(ctx, dir, end)
}
func (restlessBox) SnapshotFiles(context.Context, string, bool) error {
	return &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnavailable, Problem: "it does not stand still", Cause: sandbox.ErrRunsOn}
}

// A sandbox that cannot be written down is not lost by a pause.
func TestPauseOfWhatRunsOn(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot, c.Pause = true, true }}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": restless{d}} })
	s := h.create(t, Create{})
	for _, pause := range []func(*Handle, context.Context) (*Sandbox, error){(*Handle).Pause, (*Handle).PauseFiles} {
		if _, err := pause(h.Handle(h.key, s.ID), t.Context()); !errors.Is(err, sandbox.ErrRunsOn) || !strings.Contains(err.Error(), "stand still") {
			t.Fatalf("%v", err)
		}
		if got := h.sh(t, s.ID, "echo goes on"); got != "goes on\n" {
			t.Errorf("%q", got)
		}
	}
	if left, err := os.ReadDir(filepath.Join(h.dir.Path(), keptDir)); err != nil || len(left) > 0 {
		t.Errorf("what is left on the disk: %v, %v", left, err)
	}
}

// heavy is a level whose snapshots take a megabyte.
type heavy struct{ *faketest.Driver }

func (w heavy) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := w.Driver.Start(ctx, spec)
	return weighed{box, box.(sandbox.Pauser)}, err
}

type weighed struct {
	sandbox.Instance
	sandbox.Pauser
}

const weight = 1 << 20

func (weighed) Snapshot(_ context.Context, dir string, _ bool) error {
	return os.WriteFile(filepath.Join(dir, "memory"), bytes.Repeat([]byte("x"), weight), 0o600)
}

// What snapshots take counts for the disk of their key, before and after a restart,
// and is free again when they are deleted.
func TestSnapshotsTakeDisk(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}
	one := LivingLimits().Disk + LivingLimits().Tmp
	profile := func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": heavy{d}}
		p := DefaultProfile()
		p.Quota.Disk = one + 2*weight + weight/2 // two snapshots, and what their directories take
		o.Profiles = map[string]Profile{"": p}
	}
	h := newHome(t, profile)
	s := h.create(t, Create{})
	var last *Snapshot
	for range 2 {
		var err error
		if last, err = h.Handle(h.key, s.ID).Snapshot(t.Context(), ""); err != nil || last.Bytes < weight {
			t.Fatalf("%+v, %v", last, err)
		}
	}
	more := func() error { _, err := h.Handle(h.key, s.ID).Snapshot(t.Context(), ""); return err }
	if err := more(); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("a third: %v", err)
	}
	kept, err := os.ReadDir(filepath.Join(h.o.State.Path(), keptDir))
	if err != nil || len(kept) != 2 {
		t.Errorf("%d are kept, %v", len(kept), err)
	}
	if err := h.DeleteSnapshot(t.Context(), h.key, last.ID); err != nil {
		t.Fatal(err)
	}
	if err := more(); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.open(t, profile)
	s = h.create(t, Create{})
	if err := more(); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("a third after a restart: %v", err)
	}
	if _, err := h.Create(t.Context(), h.key, Create{}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("another sandbox: %v", err)
	}
}

// A key has so many snapshots and no more, also when it asks for all at once.
func TestSnapshotsAtOnce(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": writer{d}} })
	s := h.create(t, Create{})
	maximum := DefaultProfile().Quota.Snapshots
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for range maximum + 20 {
		all.Go(func() {
			switch _, err := h.Handle(h.key, s.ID).Snapshot(t.Context(), ""); {
			case err == nil:
				made.Add(1)
			case errors.Is(err, sandbox.ErrExhausted):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	have, err := h.Snapshots(t.Context(), h.key, "")
	if err != nil || len(have) > maximum || len(have) != int(made.Load()) || refused.Load() < 20 {
		t.Errorf("%d snapshots, %d made, %d refused, %v", len(have), made.Load(), refused.Load(), err)
	}
	for len(have) < maximum { // places that were not used are free
		one, err := h.Handle(h.key, s.ID).Snapshot(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		have = append(have, one)
	}
	if _, err := h.Handle(h.key, s.ID).Snapshot(t.Context(), ""); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("one too many: %v", err)
	}
	if err := h.DeleteSnapshot(t.Context(), h.key, have[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Handle(h.key, s.ID).Snapshot(t.Context(), ""); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
}

func TestLevelThatCannotPauseSaysSo(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Pause = false }}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": d} })
	if _, err := h.Create(t.Context(), h.key, Create{Lifetime: Lifetime{OnTimeout: registry.Pause}}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("made to be paused: %v", err)
	}
	s := h.create(t, Create{})
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("paused: %v", err)
	}
	if _, err := h.Handle(h.key, s.ID).PauseFiles(t.Context()); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("paused without its memory: %v", err)
	}
	h.sh(t, s.ID, "true") // it goes on
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil || d.Running() != 0 {
		t.Errorf("killed: %v, %d are left", err, d.Running())
	}
}
