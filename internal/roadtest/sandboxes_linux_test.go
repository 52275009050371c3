// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

// living are persistent sandboxes, on the real levels, in a state directory of
// their own.
type living struct {
	*persistent.Sandboxes
	key *persistent.Key
	dir string
	reg *registry.DB
}

func openLiving(t *testing.T, dir string, isolation string, change ...func(*persistent.SandboxesOptions)) *living {
	t.Helper()
	state, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	reg, err := registry.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	file, err := policy.Parse("test.yaml", []byte("version: 1\nisolation: "+isolation+"\nenv: {pass: [NAME]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := persistent.SandboxesOptions{
		Drivers: caisson.Drivers(), Journal: log, State: session.DirState(state), Registry: reg,
		Policies: map[string]*policy.File{"": file}, Notice: func(s string) { t.Log(s) },
	}
	for _, c := range change {
		c(&o)
	}
	b, err := persistent.OpenSandboxes(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		reg.Close()
		log.Close()
		state.Close()
		if left, _ := filepath.Glob(filepath.Join(dir, "run", "[a-z]*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return &living{b, &persistent.Key{ID: persistent.GivenKey, Name: persistent.GivenKey}, dir, reg}
}

func (l *living) sh(t *testing.T, id, line string) string {
	t.Helper()
	c := &session.Call{}
	c.Argv = []string{"sh", "-c", line}
	res, err := l.Handle(l.key, id).Exec(t.Context(), c, session.IO{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != sandbox.StatusSuccess {
		t.Fatalf("%s: %s %s %q %q", line, res.Status, res.Reason, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// A sandbox goes on where it was: its files, its memory, its processes. So it
// does in the next caisson, paused or not.
func TestPauseOnGVisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	began := time.Now()
	lap := func(what string) {
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	var s *persistent.Sandbox
	t.Run("first", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor")
		var err error
		if s, err = l.Create(t.Context(), l.key, persistent.Create{Env: map[string]string{"NAME": "value"}}); err != nil {
			t.Fatal(err)
		}
		lap("create")
		l.sh(t, s.ID, `echo one > ~/file; echo two > /tmp/file; x=0; (while sleep 0.05; do x=$((x+1)); echo $x > /tmp/count; done) >/dev/null 2>&1 &`)
		lap("exec")
		if _, err := l.Handle(l.key, s.ID).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		lap("pause")
		if s, err = l.Handle(l.key, s.ID).Resume(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		lap("resume")
		check(t, l, s.ID)
		lap("exec")
	})
	lap("stop caisson")
	if t.Failed() {
		return
	}
	t.Run("second", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor")
		check(t, l, s.ID) // it does not have to be resumed
		got, err := l.Handle(l.key, s.ID).Get(t.Context())
		if err != nil || got.State != registry.Running || !got.Ends.Equal(s.Ends) || got.Resumed != 1 {
			t.Errorf("after a restart: %+v, %v", got, err)
		}
		lap("start caisson")
		// Paused it stays paused.
		if _, err := l.Handle(l.key, s.ID).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if t.Failed() {
		return
	}
	t.Run("third", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor")
		got, err := l.Handle(l.key, s.ID).Get(t.Context())
		if err != nil || got.State != registry.Paused {
			t.Fatalf("after a restart: %v, %v", got, err)
		}
		if _, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		check(t, l, s.ID)
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) > 0 {
			t.Errorf("%d snapshots are left", len(left))
		}
		if _, err := l.Handle(l.key, s.ID).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("killed: %v", err)
		}
	})
}

// check looks for what was there before the pause.
func check(t *testing.T, l *living, id string) {
	t.Helper()
	if got := l.sh(t, id, "cat ~/file /tmp/file; echo $NAME"); got != "one\ntwo\nvalue" {
		t.Errorf("after the pause there is %q", got)
	}
	l.sh(t, id, "until was=$(cat /tmp/count); [ -n \"$was\" ]; do :; done; for i in $(seq 100); do sleep 0.05; [ $(cat /tmp/count) -gt $was ] && exit 0; done; exit 1")
}

// Copies go on where a sandbox was, each by itself, and so does the sandbox.
func TestSnapshotOnGVisor(t *testing.T) {
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	s, err := l.Create(t.Context(), l.key, persistent.Create{Env: map[string]string{"NAME": "value"}, Metadata: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	l.sh(t, s.ID, `echo one > ~/file; echo two > /tmp/file; x=0; (while sleep 0.05; do x=$((x+1)); echo $x > /tmp/count; done) >/dev/null 2>&1 &`)
	snap, err := l.Handle(l.key, s.ID).Snapshot(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	check(t, l, s.ID)
	l.sh(t, s.ID, "rm ~/file")
	forks, err := l.Handle(l.key, s.ID).Fork(t.Context(), 2, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range forks {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		l.sh(t, f.Sandbox.ID, "[ ! -e ~/file ] && cat /tmp/file && echo "+f.Sandbox.ID+" > ~/mine")
		if f.Sandbox.Metadata["a"] != "b" || f.Sandbox.ID == s.ID {
			t.Errorf("copy %d: %+v", i, f.Sandbox)
		}
	}
	l.sh(t, s.ID, "[ ! -e ~/mine ]")
	back, err := l.Create(t.Context(), l.key, persistent.Create{Snapshot: snap.ID})
	if err != nil {
		t.Fatal(err)
	}
	check(t, l, back.ID)
	other := &persistent.Key{ID: "kother", Name: "other"}
	if _, err := l.Create(t.Context(), other, persistent.Create{Snapshot: snap.ID}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another key's snapshot: %v", err)
	}
	if err := l.DeleteSnapshot(t.Context(), other, snap.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another key deletes it: %v", err)
	}
	if err := l.DeleteSnapshot(t.Context(), l.key, snap.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(l.dir, "kept")); len(left) > 0 {
		t.Errorf("%d snapshots are left", len(left))
	}
	l.sh(t, back.ID, "true")
}
