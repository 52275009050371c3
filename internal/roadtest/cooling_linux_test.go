// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// cools has sandboxes go cold as soon as they can.
func cools(t *testing.T, text string) func(*persistent.SandboxesOptions) {
	t.Helper()
	file, err := policy.Parse("test.yaml", []byte("version: 1\nisolation: gvisor\nenv: {pass: [NAME]}\ncooling: "+text+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return func(o *persistent.SandboxesOptions) { o.Policies[""] = file }
}

// coldAs waits until a sandbox has gone that cold.
func (l *living) coldAs(t *testing.T, id string, want registry.Coldness) *persistent.Sandbox {
	t.Helper()
	var got *persistent.Sandbox
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); <-time.After(50 * time.Millisecond) {
		var err error
		if got, err = l.Handle(l.key, id).Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got.State != registry.Running {
			t.Fatalf("it is %s", got.State)
		}
		if got.Cold == want {
			return got
		}
	}
	t.Fatalf("it is %q, not %q", got.Cold, want)
	return nil
}

// A sandbox goes down to the disk by itself, where it has no process, and comes back as it
// was: asked, after a restart, in many hands at once. Where its memory is damaged it begins
// with its files, and says so.
func TestCoolingOnGVisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var s *persistent.Sandbox
	t.Run("first", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", cools(t, "{freeze: 1s, disk: 2s}"))
		var err error
		if s, err = l.Create(t.Context(), l.key, persistent.Create{Env: map[string]string{"NAME": "value"}}); err != nil {
			t.Fatal(err)
		}
		l.sh(t, s.ID, `echo one > ~/file; echo two > /tmp/file; sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid`)
		got := l.coldAs(t, s.ID, registry.OnDisk)
		if got.Kept == "" || got.Seal == nil || got.Seal.Files == "" || got.Ends != s.Ends {
			t.Errorf("on the disk: %+v, %+v", got, got.Seal)
		}
		if runs, _ := filepath.Glob(filepath.Join(dir, "run", "r*")); len(runs) > 0 {
			t.Errorf("there is more of it than on the disk: %q", runs)
		}
		list, _ := filepath.Glob(filepath.Join(dir, "kept", "*", "*"))
		for _, f := range list {
			info, err := os.Stat(f)
			t.Log(filepath.Base(f), info.Size())
			if err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v, %v", f, info.Mode(), err)
			}
		}
		var all sync.WaitGroup
		for range 5 { // at once
			all.Go(func() {
				began := time.Now()
				if got := l.sh(t, s.ID, "cat ~/file /tmp/file; echo $NAME; kill -0 $(cat /tmp/pid) && echo lives"); got != "one\ntwo\nvalue\nlives" {
					t.Errorf("woken it says %q", got)
				}
				t.Logf("woken from the disk to the first answer: %s", time.Since(began).Round(time.Millisecond))
			})
		}
		all.Wait()
		l.coldAs(t, s.ID, registry.OnDisk)
	})
	if t.Failed() {
		return
	}
	t.Run("second", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", cools(t, "{freeze: 1s, disk: 2s}"))
		l.coldAs(t, s.ID, registry.OnDisk) // nothing has woken it
		if got := l.sh(t, s.ID, "cat ~/file; kill -0 $(cat /tmp/pid) && echo lives"); got != "one\nlives" {
			t.Errorf("woken it says %q", got)
		}
		got := l.coldAs(t, s.ID, registry.OnDisk)
		spoil(t, filepath.Join(dir, "kept", got.Kept, "pages.img"))
		if got := l.sh(t, s.ID, "cat ~/file /tmp/file; kill -0 $(cat /tmp/pid) 2>/dev/null || echo anew"); got != "one\ntwo\nanew" {
			t.Errorf("with its files it says %q", got)
		}
		if got, err := l.Handle(l.key, s.ID).Get(t.Context()); err != nil || !strings.Contains(got.Rebooted, "not on the disk as it was written") {
			t.Errorf("it does not say that it began anew: %+v, %v", got, err)
		}
		// With nothing that can be trusted it stays where it is, and the rest of it too.
		got = l.coldAs(t, s.ID, registry.OnDisk)
		spoil(t, filepath.Join(dir, "kept", got.Kept, "checkpoint.img"))
		list, _ := filepath.Glob(filepath.Join(dir, "kept", got.Kept, "files", "*"))
		spoil(t, list[0])
		if _, leave, err := l.Handle(l.key, s.ID).Enter(t.Context()); !errors.Is(err, sandbox.ErrMisfit) {
			if err == nil {
				leave()
			}
			t.Errorf("all of it is damaged: %v", err)
		}
		l.coldAs(t, s.ID, registry.OnDisk)
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
	})
}

// spoil changes a byte of a file.
func spoil(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	b[0]++
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

// A sandbox that stands still goes on when it is paused, copied, or let go of.
func TestFrozenOnGVisor(t *testing.T) {
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", cools(t, "{freeze: 1s}"), func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	s, err := l.Create(t.Context(), l.key, persistent.Create{})
	if err != nil {
		t.Fatal(err)
	}
	l.sh(t, s.ID, "sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid")
	for i, do := range []func() error{
		func() error { l.sh(t, s.ID, "true"); return nil },
		func() error { _, err := l.Handle(l.key, s.ID).Pause(t.Context()); return err },
		func() error { _, err := l.Handle(l.key, s.ID).Snapshot(t.Context(), "x"); return err },
	} {
		l.coldAs(t, s.ID, registry.Frozen)
		began := time.Now()
		if err := do(); err != nil {
			t.Fatal(i, err)
		}
		t.Logf("%d: %s", i, time.Since(began).Round(time.Millisecond))
		if i == 1 {
			if _, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.sh(t, s.ID, "kill -0 $(cat /tmp/pid) && echo lives"); got != "lives" {
			t.Error(i, got)
		}
	}
	l.coldAs(t, s.ID, registry.Frozen)
	if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cooled is how many sandboxes TestKilledCooling cools.
func cooled() int {
	if n, err := strconv.Atoi(os.Getenv("CAISSON_TEST_COOLED")); err == nil {
		return n
	}
	return 5
}

func outlives(o *persistent.SandboxesOptions) { o.Grace = time.Minute }

// TestCoolingOwner is what TestKilledCooling kills, while its sandboxes go cold.
func TestCoolingOwner(t *testing.T) {
	o := asOwner(t, cools(t, "{freeze: 1s, disk: 2s}"), outlives)
	for range cooled() {
		s, err := o.Create(t.Context(), o.key, persistent.Create{Lifetime: persistent.Lifetime{Timeout: time.Hour}})
		o.must(err)
		o.script(t, s.ID, "echo $$ > ~/file; exec >/dev/null 2>&1; sleep 1000 & echo $! > /tmp/pid")
	}
	o.say("cooling all")
	for said := map[string]bool{}; ; <-time.After(20 * time.Millisecond) {
		page, err := o.List(t.Context(), o.key, persistent.Filter{})
		o.must(err)
		for _, s := range page.Sandboxes {
			if s.Cold == registry.OnDisk && !said[s.ID] {
				said[s.ID] = true
				o.say("made %s", s.ID)
			}
		}
	}
}

// An owner that is killed while sandboxes go cold loses none of them, wherever they were.
func TestKilledCooling(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	_, made := kill(t, "TestCoolingOwner", dir, "cooling", "TMPDIR="+t.TempDir())
	if t.Failed() {
		return
	}
	l := openLiving(t, dir, "gvisor", outlives, func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	page, err := l.List(t.Context(), l.key, persistent.Filter{Limit: 100})
	if err != nil || len(page.Sandboxes) != cooled() {
		t.Fatalf("%d of %d are left, %v", len(page.Sandboxes), cooled(), err)
	}
	t.Logf("%d were on the disk", len(made))
	for _, s := range page.Sandboxes {
		if got := l.sh(t, s.ID, "[ -s ~/file ] && kill -0 $(cat /tmp/pid) && echo lives"); got != "lives" {
			t.Errorf("%s says %q", s.ID, got)
		}
	}
}

// Where the disk is full a sandbox does not go to it, and goes on as it was.
func TestCoolingOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts a small disk")
	}
	dir := filepath.Join(t.TempDir(), "state")
	l := openLiving(t, dir, "gvisor", cools(t, "{disk: 1s}"), func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	kept := filepath.Join(dir, "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("small", kept, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(kept, unix.MNT_DETACH)
	s, err := l.Create(t.Context(), l.key, persistent.Create{})
	if err != nil {
		t.Fatal(err)
	}
	l.sh(t, s.ID, "sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid")
	l.coldAs(t, s.ID, registry.Frozen) // it stands still for it, and stays so
	if got := l.sh(t, s.ID, "kill -0 $(cat /tmp/pid) && echo lives"); got != "lives" {
		t.Error(got)
	}
	if left, _ := os.ReadDir(kept); len(left) > 0 {
		t.Errorf("%d are left on the disk", len(left))
	}
}
