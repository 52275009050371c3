// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session/registry"
)

// twofold is a level that writes memory and files down, of which each takes a megabyte. What
// goes on from memory says in its host name nothing of that.
type twofold struct {
	*faketest.Driver
	upgraded            bool // memory that was kept does not fit
	noMemory, noFiles   error
	sticks              error // no sandbox goes on that stood still
	memories, filesOnly int   // sandboxes that were made of them
}

func (d *twofold) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := d.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &twofoldBox{box, box.(sandbox.Pauser), d}, nil
}

func (d *twofold) Restore(ctx context.Context, spec *sandbox.Spec, dir string) (sandbox.Instance, error) {
	if _, err := os.Stat(filepath.Join(dir, "memory")); err != nil {
		d.filesOnly++
		return d.Start(ctx, spec)
	}
	if d.upgraded {
		return nil, &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnsupported, Problem: "its memory was kept by an older one", Cause: sandbox.ErrMisfit}
	}
	d.memories++
	return d.Start(ctx, spec)
}

type twofoldBox struct {
	sandbox.Instance
	sandbox.Pauser
	d *twofold
}

func (b *twofoldBox) Resume(ctx context.Context) error {
	return errors.Join(b.d.sticks, b.Pauser.Resume(ctx))
}

func (b *twofoldBox) Snapshot(_ context.Context, dir string, _ bool) error {
	return errors.Join(os.WriteFile(filepath.Join(dir, "memory"), bytes.Repeat([]byte("m"), weight), 0o600), b.d.noMemory)
}

func (b *twofoldBox) SnapshotFiles(_ context.Context, dir string, _ bool) error {
	return errors.Join(os.WriteFile(filepath.Join(dir, "tar"), bytes.Repeat([]byte("f"), weight), 0o600), b.d.noFiles)
}

// twofoldHome has sandboxes of such a level.
type twofoldHome struct {
	*home
	d       *twofold
	change  func(*SandboxesOptions)
	notices []string
}

func newTwofoldHome(t *testing.T, quota Quota) *twofoldHome {
	d := &twofold{Driver: &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}}
	f := &twofoldHome{d: d}
	f.change = func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": d}
		p := DefaultProfile()
		p.Quota = quota
		o.Profiles = map[string]Profile{"": p}
		o.Notice = func(s string) { f.notices = append(f.notices, s) }
	}
	f.home = newHome(t, f.change)
	return f
}

func (f *twofoldHome) paused(t *testing.T, id string) *Sandbox {
	t.Helper()
	s, err := f.Handle(f.key, id).Pause(t.Context())
	if err != nil || s.State != registry.Paused {
		t.Fatalf("%+v, %v", s, err)
	}
	return s
}

// anew checks that a sandbox says that it began anew: its row, the record of its start under
// it, its key's events, the operator's notices.
func (f *twofoldHome) anew(t *testing.T, id string) {
	t.Helper()
	const why = "kept by an older one"
	got, err := f.Handle(f.key, id).Get(t.Context())
	if err != nil || got.State != registry.Running || !strings.Contains(got.Rebooted, why) {
		t.Errorf("its row: %+v, %v", got, err)
	}
	starts := f.recorded(t, id, "start_sandbox")
	if !slices.ContainsFunc(starts, func(r *sandbox.Result) bool { return r != nil && strings.Contains(r.Reason, why) }) {
		t.Errorf("none of the records of its starts says so, of %d", len(starts))
	}
	told := 0
	events, _ := f.Events(f.key, 0)
	for _, e := range events {
		if e.Kind == "rebooted" && e.Sandbox == id && strings.Contains(e.Reason, why) {
			told++
		}
	}
	if told != 1 || !strings.Contains(strings.Join(f.notices, "\n"), id+": "+beganAnew) {
		t.Errorf("%d events say so, and the notices %q", told, f.notices)
	}
}

// kept are the files that lie there.
func (f *twofoldHome) kept(t *testing.T) (names []string) {
	t.Helper()
	root := filepath.Join(f.o.State.Path(), keptDir)
	for _, deep := range []string{"*/*", "*/*/*"} {
		list, _ := filepath.Glob(filepath.Join(root, deep))
		for _, p := range list {
			if info, err := os.Stat(p); err == nil && !info.IsDir() {
				name, _ := filepath.Rel(root, p)
				_, name, _ = strings.Cut(name, "/")
				names = append(names, name)
			}
		}
	}
	return names
}

// What is paused by hand, or by a stop of caisson, goes on after an upgrade: with its memory
// where that fits, else with its files, and it says so. What lies on the disk counts, and goes.
func TestPausedHasItsFilesBeside(t *testing.T) {
	f := newTwofoldHome(t, Quota{})
	s := f.create(t, Create{})
	before := f.inventory.disk(f.key.ID)
	p := f.paused(t, s.ID)
	if got := strings.Join(f.kept(t), " "); got != "memory files/tar" || p.Seal.Files == "" {
		t.Errorf("on the disk are %q, %+v", got, p.Seal)
	}
	if n := f.inventory.disk(f.key.ID) - before; n < 2*weight || n != p.Seal.Bytes {
		t.Errorf("%d bytes count for its key, of %d", n, p.Seal.Bytes)
	}
	resume := func() {
		t.Helper()
		if _, err := f.Handle(f.key, s.ID).Resume(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if left := f.kept(t); len(left) > 0 || f.inventory.disk(f.key.ID) != before {
			t.Errorf("left on the disk: %q, %d count", left, f.inventory.disk(f.key.ID)-before)
		}
	}
	resume()
	if got, _ := f.Handle(f.key, s.ID).Get(t.Context()); got.Rebooted != "" || f.d.memories != 1 {
		t.Errorf("its memory fits: %q", got.Rebooted)
	}
	f.paused(t, s.ID)
	f.d.upgraded = true
	resume()
	f.anew(t, s.ID)

	// Stopped for the upgrade.
	f.d.upgraded = false
	other := f.create(t, Create{})
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.d.upgraded, f.notices = true, nil
	f.open(t, f.change)
	f.sh(t, other.ID, "true") // it goes on by itself
	f.anew(t, other.ID)
}

// A snapshot is kept for long, and has its files beside; what a fork is made of is not.
func TestSnapshotHasItsFilesBeside(t *testing.T) {
	f := newTwofoldHome(t, Quota{})
	s := f.create(t, Create{})
	snap, err := f.Handle(f.key, s.ID).Snapshot(t.Context(), "before")
	if err != nil || snap.Bytes < 2*weight || snap.Seal.Files == "" {
		t.Fatalf("%+v, %v", snap, err)
	}
	f.sh(t, s.ID, "true") // it goes on
	if forks, err := f.Handle(f.key, s.ID).Fork(t.Context(), 1, 0); err != nil || forks[0].Err != nil || f.d.memories != 1 {
		t.Fatalf("%+v, %v", forks, err)
	}
	f.d.upgraded = true
	f.anew(t, f.create(t, Create{Snapshot: snap.ID}).ID)
	if err := f.DeleteSnapshot(t.Context(), f.key, snap.ID); err != nil {
		t.Fatal(err)
	}
	if left := f.kept(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A sandbox that does not go on once it was written down ends, and what was written stays: it is
// all that is left of it. Where that is not whole it does not.
func TestSnapshotOutlivesItsSandbox(t *testing.T) {
	f := newTwofoldHome(t, Quota{})
	f.d.sticks = errors.New("it sticks")
	s := f.create(t, Create{Env: map[string]string{"WHOSE": "mine"}})
	_, err := f.Handle(f.key, s.ID).Snapshot(t.Context(), "last")
	all, listed := f.Snapshots(t.Context(), f.key, s.ID)
	if listed != nil || len(all) != 1 {
		t.Fatalf("%v, %v; %v", all, listed, err)
	}
	if !errors.Is(err, f.d.sticks) || !strings.Contains(err.Error(), all[0].ID) || !strings.Contains(sandbox.Hint(err), all[0].ID) {
		t.Errorf("%v (%s)", err, sandbox.Hint(err))
	}
	if got, err := f.Handle(f.key, s.ID).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("it has ended: %+v, %v", got, err)
	}
	c := f.create(t, Create{Snapshot: all[0].ID})
	if got := f.sh(t, c.ID, "echo $WHOSE"); got != "mine\n" || f.d.memories != 1 {
		t.Errorf("%q, of %d memories", got, f.d.memories)
	}
	f.d.noMemory = errors.New("a full disk")
	if _, err := f.Handle(f.key, c.ID).Snapshot(t.Context(), ""); !errors.Is(err, f.d.noMemory) || !errors.Is(err, f.d.sticks) {
		t.Errorf("half a snapshot: %v", err)
	}
	if all, err := f.Snapshots(t.Context(), f.key, ""); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// With nothing that can be trusted it stays paused, and ends when it is told to.
func TestPausedWithDamagedFiles(t *testing.T) {
	f := newTwofoldHome(t, Quota{})
	s := f.create(t, Create{})
	p := f.paused(t, s.ID)
	if err := os.WriteFile(filepath.Join(f.o.State.Path(), keptDir, p.Kept, filesDir, "tar"), []byte("others"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.d.upgraded = true
	if _, err := f.Handle(f.key, s.ID).Resume(t.Context(), 0); !errors.Is(err, sandbox.ErrMisfit) || !strings.Contains(err.Error(), "what its files were is not on the disk") {
		t.Errorf("resumed: %v", err)
	}
	if got, err := f.Handle(f.key, s.ID).Get(t.Context()); err != nil || got.State != registry.Paused || f.d.filesOnly != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	f.d.upgraded = false
	if _, err := f.Handle(f.key, s.ID).Resume(t.Context(), 0); err != nil { // its memory is whole
		t.Error(err)
	}
	f.paused(t, s.ID)
	if err := f.Handle(f.key, s.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := f.kept(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Where the files cannot be written, or the key has no room for them, there is the memory, and
// the operator is told. Where the memory cannot be written the sandbox goes on.
func TestPausedWithItsMemoryAlone(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		f := newTwofoldHome(t, Quota{})
		s := f.create(t, Create{})
		f.d.noFiles = errors.New("no files here")
		if p := f.paused(t, s.ID); p.Seal.Files != "" || strings.Join(f.kept(t), " ") != "memory" {
			t.Errorf("%+v, %q", p.Seal, f.kept(t))
		}
		if got := strings.Join(f.notices, "\n"); !strings.Contains(got, "its memory alone: no files here") {
			t.Errorf("told: %q", got)
		}
		f.d.upgraded = true
		if _, err := f.Handle(f.key, s.ID).Resume(t.Context(), 0); !errors.Is(err, sandbox.ErrMisfit) {
			t.Errorf("resumed: %v", err)
		}
	})
	t.Run("room", func(t *testing.T) {
		f := newTwofoldHome(t, Quota{Disk: LivingLimits().Disk + LivingLimits().Tmp + weight + weight/2})
		s := f.create(t, Create{})
		if snap, err := f.Handle(f.key, s.ID).Snapshot(t.Context(), ""); err != nil || snap.Seal.Files != "" || snap.Bytes >= 2*weight {
			t.Errorf("%+v, %v", snap, err)
		} else if err := f.DeleteSnapshot(t.Context(), f.key, snap.ID); err != nil {
			t.Fatal(err)
		}
		if p := f.paused(t, s.ID); p.Seal.Files != "" || p.Seal.Bytes >= 2*weight {
			t.Errorf("%+v", p.Seal)
		}
		if got := strings.Join(f.notices, "\n"); strings.Count(got, "its memory alone: quota: what is kept of it takes") != 2 {
			t.Errorf("told: %q", got)
		}
	})
	t.Run("memory", func(t *testing.T) {
		f := newTwofoldHome(t, Quota{})
		s := f.create(t, Create{})
		f.d.noMemory = errors.New("a full disk")
		if _, err := f.Handle(f.key, s.ID).Pause(t.Context()); err == nil || !strings.Contains(err.Error(), "a full disk") {
			t.Errorf("paused: %v", err)
		}
		if _, err := f.Handle(f.key, s.ID).Snapshot(t.Context(), ""); err == nil {
			t.Error("written down")
		}
		f.sh(t, s.ID, "true")
		if left := f.kept(t); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		f.d.noMemory = nil
	})
}
