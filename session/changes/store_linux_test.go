// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

func TestStoreIsPrivate(t *testing.T) {
	ws := newWorkspace(t, nil)
	set := ws.keep(newTar().file("f", "x", 0o644).bytes())
	err := filepath.WalkDir(ws.store.dir, func(at string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode()&0o077 != 0 {
			t.Errorf("%s: %v, %v", at, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := os.Chmod(ws.store.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ws.store.dir, Options{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Error(err)
	}
	_ = set
}

func TestGetAndList(t *testing.T) {
	ws := newWorkspace(t, nil)
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	ws.store.o.Now = func() time.Time { return now }
	var sets []*Set
	for i, owner := range []string{"", "key", "other"} {
		ws.src.Owner = owner
		now = now.Add(time.Minute)
		sets = append(sets, ws.keep(newTar().file("f", fmt.Sprint(i), 0o644).bytes()))
	}
	for owner, want := range map[string][]string{"": {sets[2].ID, sets[1].ID, sets[0].ID}, "key": {sets[1].ID}, "none": nil} {
		list, err := ws.store.List(owner)
		var ids []string
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		if diff := cmp.Diff(want, ids); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", owner, err, diff)
		}
	}
	for _, tc := range []struct {
		owner, id string
		found     bool
	}{{"", sets[0].ID, true}, {"", sets[1].ID[:4], true}, {"key", sets[1].ID[:4], true}, {"key", sets[2].ID, false}, {"", sets[0].ID[:3], false}, {"", "", false}, {"", "../lock", false}, {"", "%%%%", false}} {
		if set, err := ws.store.Get(tc.owner, tc.id); (err == nil) != tc.found || err != nil && !errors.Is(err, sandbox.ErrNotFound) || err == nil && !strings.HasPrefix(set.ID, tc.id) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	for _, id := range []string{"", "lock", "..", sets[0].ID[:4]} {
		if err := ws.store.Drop(id); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("drop %q: %v", id, err)
		}
	}
	if err := ws.store.Drop(sets[0].ID); err != nil {
		t.Error(err)
	}
	if _, err := ws.store.Get("", sets[0].ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
}

// What was kept is read back as it was, and a set that was tampered with is none.
func TestReadBack(t *testing.T) {
	ws := newWorkspace(t, tree{"f": {File, "old", false}})
	ws.src.Run, ws.src.Owner = "run-1", "key"
	set := ws.keep(newTar().file("f", "new", 0o644).file("a\xff\nb", "x", 0o644).link("l", "\xfe").bytes())
	again, err := ws.store.Get("key", set.ID)
	if err != nil || !cmp.Equal(set, again) {
		t.Fatalf("%v\n%s", err, cmp.Diff(set, again))
	}
	if b, err := json.Marshal(set); err != nil || !bytes.Contains(b, []byte(`"path":"a\\xff\\x0ab"`)) {
		t.Errorf("%s, %v", b, err)
	}
	c, err := ws.store.Files(set.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Set.Entries {
		if e := &c.Set.Entries[i]; e.Type == File {
			r, err := c.Open(e)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if want := map[string]string{"f": "new"}[e.Path]; err != nil || string(text) != want && e.Path == "f" {
				t.Errorf("%q, %v", text, err)
			}
			r.Close()
		}
	}
	if err := ws.store.Drop(set.ID); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a set that is read is dropped: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	name := ws.store.path(set.ID, manifestFile)
	m, _ := os.ReadFile(name)
	if err := os.WriteFile(name, bytes.Replace(m, []byte(`"path":"f"`), []byte(`"path":"g"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.store.Get("key", set.ID); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "another digest") {
		t.Error(err)
	}
}

func TestExpiry(t *testing.T) {
	ws := newWorkspace(t, nil)
	now := time.Now()
	o := Options{MaxAge: time.Hour, Now: func() time.Time { return now }}
	open := func() {
		t.Helper()
		s, err := Open(ws.store.dir, o)
		if err != nil {
			t.Fatal(err)
		}
		ws.store = s
	}
	open()
	old, half := ws.keep(newTar().file("f", "x", 0o644).bytes()), ws.keep(newTar().file("f", "y", 0o644).bytes())
	if err := os.WriteFile(ws.store.path(half.ID, journalFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(59 * time.Minute)
	young := ws.keep(newTar().file("f", "z", 0o644).bytes())
	now = now.Add(time.Minute)
	if err := os.MkdirAll(ws.store.path(makingDir+"KILLED", contentDir), 0o700); err != nil {
		t.Fatal(err)
	}
	making, err := lockFile(ws.store.path(makingDir+"KILLED", setLock), lockTry)
	if err != nil {
		t.Fatal(err)
	}
	open()
	if got := strings.Join(ws.storeNames(), " "); strings.Contains(got, old.ID) || !strings.Contains(got, half.ID) || !strings.Contains(got, young.ID) || !strings.Contains(got, "KILLED") {
		t.Error(got)
	}
	making.Close()
	open()
	if got := strings.Join(ws.storeNames(), " "); strings.Contains(got, "KILLED") {
		t.Error(got)
	}
}

func TestSize(t *testing.T) {
	ws := newWorkspace(t, nil)
	s, err := Open(ws.store.dir, Options{MaxBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	ws.store = s
	first := ws.keep(newTar().file("f", strings.Repeat("x", 45), 0o644).file("same", strings.Repeat("x", 45), 0o644).bytes())
	if first.Bytes != 45 {
		t.Errorf("%d bytes", first.Bytes)
	}
	big := newTar().file("f", strings.Repeat("y", 56), 0o644).bytes()
	_, err = s.Keep(t.Context(), ws.src, bytes.NewReader(big))
	if !errors.Is(err, sandbox.ErrExhausted) || !strings.Contains(err.Error(), "at most 100 bytes, and 55 are left") {
		t.Error(err)
	}
	if names := ws.storeNames(); len(names) != 2 {
		t.Errorf("%v are left", names)
	}
	ws.keep(newTar().file("f", strings.Repeat("y", 55), 0o644).bytes())
	if err := s.Drop(first.ID); err != nil {
		t.Fatal(err)
	}
	ws.keep(newTar().file("f", strings.Repeat("z", 45), 0o644).bytes())
}

// Sets are made, listed and dropped by several processes at once, and applied by one.
func TestProcesses(t *testing.T) {
	ws := newWorkspace(t, tree{"f": {File, "old", false}})
	set := ws.keep(newTar().file("f", "new", 0o644).bytes())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := Open(ws.store.dir, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			for j := range 10 {
				mine, err := s.Keep(t.Context(), ws.src, bytes.NewReader(newTar().file(fmt.Sprint("g", i, j), "x", 0o644).bytes()))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.List(""); err != nil {
					t.Error(err)
				}
				if err := s.Drop(mine.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var ended [2]error
	for i := range ended {
		wg.Go(func() {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), applyEnv+"="+strings.Join([]string{ws.store.dir, set.ID, set.Digest}, "\n"))
			out, err := cmd.CombinedOutput()
			if err != nil && !bytes.Contains(out, []byte("another call uses it")) {
				t.Errorf("%s, %v", out, err)
			}
			ended[i] = err
		})
	}
	wg.Wait()
	if ended[0] != nil && ended[1] != nil || ws.read("f") != "new" {
		t.Errorf("%v, %s", ended, ws.read("f"))
	}
	if list, err := ws.store.List(""); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
