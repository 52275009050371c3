// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// A sandbox that its user paused, one that was stopped with caisson and a snapshot go on with
// their files after an upgrade, and say so. What is beside the memory goes with it.
func TestUpgradedOnGVisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	anew := func(t *testing.T, l *living, id string) {
		t.Helper()
		if got := l.sh(t, id, `cat ~/file; [ "$(cat /proc/$(cat /tmp/pid)/comm 2>/dev/null)" = sleep ] || echo anew`); got != "one\nanew" {
			t.Errorf("it says %q", got)
		}
		if got, err := l.Handle(l.key, id).Get(t.Context()); err != nil || !strings.Contains(got.Rebooted, "its memory was kept ") {
			t.Errorf("it does not say why it began anew: %+v, %v", got, err)
		}
	}
	upgrade := func(t *testing.T, id string, snap *persistent.Snapshot) { // while there is no caisson
		t.Helper()
		reg, err := registry.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer reg.Close()
		upgraded(t, reg, dir, id)
		if snap == nil {
			return
		}
		snap.Seal.Memory = ofAnother(t, filepath.Join(dir, "kept", snap.Kept))
		if _, err := reg.DropSnapshot(t.Context(), snap.ID); err != nil {
			t.Fatal(err)
		}
		if err := reg.PutSnapshot(t.Context(), snap); err != nil {
			t.Fatal(err)
		}
	}
	const start = "sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid"
	var id string
	var snap *persistent.Snapshot
	if !t.Run("paused", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor")
		s, err := l.Create(t.Context(), l.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID
		l.sh(t, id, "echo one > ~/file; head -c 8000000 /dev/urandom > ~/large; "+start)
		began := time.Now()
		snap, err = l.Handle(l.key, id).Snapshot(t.Context(), "before")
		if err != nil || snap.Seal.Files == "" {
			t.Fatalf("%+v, %v", snap, err)
		}
		t.Logf("written down: %s, %d bytes", time.Since(began).Round(time.Millisecond), snap.Bytes)
		if got := l.sh(t, id, "kill -0 $(cat /tmp/pid) && echo lives"); got != "lives" {
			t.Errorf("after a snapshot it says %q", got)
		}
		began = time.Now()
		p, err := l.Handle(l.key, id).Pause(t.Context())
		if err != nil || p.Seal.Files == "" {
			t.Fatalf("%+v, %v", p, err)
		}
		t.Logf("paused: %s, %d bytes", time.Since(began).Round(time.Millisecond), p.Seal.Bytes)
		list, _ := filepath.Glob(filepath.Join(dir, "kept", p.Kept, "files", "*"))
		for _, f := range list {
			if info, err := os.Stat(f); err == nil {
				t.Log("beside its memory:", filepath.Base(f), info.Size())
			}
		}
	}) {
		return
	}
	upgrade(t, id, snap)
	if !t.Run("resumed", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor")
		began := time.Now()
		if _, err := l.Handle(l.key, id).Resume(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		t.Logf("begun anew: %s", time.Since(began).Round(time.Millisecond))
		anew(t, l, id)
		l.sh(t, id, start)
		made, err := l.Create(t.Context(), l.key, persistent.Create{Snapshot: snap.ID})
		if err != nil {
			t.Fatal(err)
		}
		anew(t, l, made.ID)
		if err := l.Handle(l.key, made.ID).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.DeleteSnapshot(t.Context(), l.key, snap.ID); err != nil {
			t.Fatal(err)
		}
	}) {
		return
	}
	upgrade(t, id, nil)
	t.Run("stopped", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor")
		anew(t, l, id)
		if err := l.Handle(l.key, id).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
	})
}

// TestPausingOwner is what TestKilledPausing kills, while its sandboxes are written down.
func TestPausingOwner(t *testing.T) {
	o := asOwner(t, outlives)
	var ids []string
	for range cooled() {
		s, err := o.Create(t.Context(), o.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Hour}})
		o.must(err)
		o.script(t, s.ID, "echo $$ > ~/file; exec >/dev/null 2>&1; sleep 1000 & echo $! > /tmp/pid")
		ids = append(ids, s.ID)
	}
	o.say("pausing all")
	for _, id := range ids {
		go func() {
			_, err := o.Handle(o.key, id).Pause(t.Context())
			o.must(err)
			o.say("made %s", id)
		}()
	}
	select {}
}

// An owner that is killed while sandboxes are paused loses none of them: each is paused, or
// runs on. What it had begun to write is gone.
func TestKilledPausing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	_, made := kill(t, "TestPausingOwner", dir, "pausing", "TMPDIR="+t.TempDir())
	if t.Failed() {
		return
	}
	l := openLiving(t, dir, "gvisor", outlives, func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	page, err := l.List(t.Context(), l.key, persistent.Filter{Limit: 100})
	if err != nil || len(page.Sandboxes) != cooled() {
		t.Fatalf("%d of %d are left, %v", len(page.Sandboxes), cooled(), err)
	}
	paused := 0
	for _, s := range page.Sandboxes {
		if s.State == registry.Paused {
			paused++
			if _, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.sh(t, s.ID, "[ -s ~/file ] && kill -0 $(cat /tmp/pid) && echo lives"); got != "lives" {
			t.Errorf("%s says %q", s.ID, got)
		}
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d were paused, %d of them said to be", paused, len(made))
	if paused < len(made) {
		t.Errorf("%d were said to be paused, and %d are", len(made), paused)
	}
	for _, place := range []string{"kept/*", "run/r*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, place)); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}
