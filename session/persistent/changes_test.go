// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
)

// layerOf is a layer in which files were written: names and contents in turns.
func layerOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		err := w.WriteHeader(&tar.Header{Name: files[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[i+1]))})
		if _, werr := w.Write([]byte(files[i+1])); err != nil || werr != nil {
			t.Fatal(err, werr)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// workspaceHome is a home whose keys have a copy-on-write workspace, which is given, on a
// level that tells a layer; more is added to the policy.
func workspaceHome(t *testing.T, d *faketest.Driver, more string) (h *home, dir string) {
	dir = t.TempDir()
	h = newHome(t, func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": d}
		o.Policies = map[string]*policy.File{"": policyOf(t, "version: 1\nfiles: {workspace: {source: "+dir+"}}\n"+more)}
	})
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return h, dir
}

func policyOf(t *testing.T, text string) *policy.File {
	t.Helper()
	f, err := policy.Parse("/p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestKeepChanges(t *testing.T) {
	d := &faketest.Driver{Agent: true, Changes: layerOf(t, "a", "changed\n", "late", "changed\n", "new.txt", "two\n")}
	h, dir := workspaceHome(t, d, "")
	s := h.create(t, Create{})
	if err := os.WriteFile(filepath.Join(dir, "late"), []byte("by the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	kept, err := h.Handle(h.key, s.ID).KeepChanges(t.Context(), false)
	if err != nil || kept == nil || kept.Files != 3 || kept.ID == "" || kept.Digest == "" {
		t.Fatalf("%+v, %v", kept, err)
	}
	if h.sh(t, s.ID, "echo on") != "on\n" {
		t.Error("it does not go on")
	}
	store, err := mustSession(t, h).ChangeSets()
	if err != nil {
		t.Fatal(err)
	}
	set, err := store.Get(h.key.ID, kept.ID)
	if err != nil || set.Name != dir || set.Owner != h.key.ID || set.Run != s.ID {
		t.Errorf("%+v, %v", set, err)
	}
	if len(set.Entries) != 3 || set.Entries[0].Base.Touched || !set.Entries[1].Base.Touched {
		t.Errorf("what the host wrote after the sandbox was made, and that alone, is a conflict: %+v", set.Entries)
	}
	again, err := h.Handle(h.key, s.ID).KeepChanges(t.Context(), false)
	if err != nil || again.ID == kept.ID {
		t.Errorf("a second one: %+v, %v", again, err)
	}
	if !recorded(t, h, session.KindKeepChanges, s.ID, audit.Allowed) {
		t.Error("it is not in the record")
	}
	if _, err := h.Handle(h.newKey(t, "stranger"), s.ID).KeepChanges(t.Context(), false); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another key: %v", err)
	}
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Handle(h.key, s.ID).KeepChanges(t.Context(), false); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("while it is paused: %v", err)
	}
}

// What cannot be kept is refused by name.
func TestKeepChangesRefused(t *testing.T) {
	layer := layerOf(t, "x", "x")
	for name, c := range map[string]struct {
		level *faketest.Driver
		more  string
		bare  bool
		kind  error
		says  string
	}{
		"no workspace": {level: &faketest.Driver{Agent: true, Changes: layer}, bare: true, kind: sandbox.ErrUnsupported, says: "no copy-on-write workspace"},
		"no ability":   {level: &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Changes = false }}, kind: sandbox.ErrUnsupported, says: "gvisor does not tell"},
		"keep none":    {level: &faketest.Driver{Agent: true, Changes: layer}, more: "changes: {keep: none}\n", kind: sandbox.ErrDenied, says: "keep: none"},
	} {
		t.Run(name, func(t *testing.T) {
			var h *home
			if c.bare {
				h = newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": c.level} })
			} else {
				h, _ = workspaceHome(t, c.level, c.more)
			}
			s := h.create(t, Create{})
			_, err := h.Handle(h.key, s.ID).KeepChanges(t.Context(), false)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if recorded(t, h, session.KindKeepChanges, s.ID, audit.Allowed) {
				t.Error("the record has it as done")
			}
		})
	}
}

// The directory that is there now may be another one.
func TestKeepChangesOfAnotherDirectory(t *testing.T) {
	d := &faketest.Driver{Agent: true, Changes: layerOf(t, "x", "x")}
	h, dir := workspaceHome(t, d, "")
	s := h.create(t, Create{})
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Handle(h.key, s.ID).KeepChanges(t.Context(), false); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("%v", err)
	}
}

// copier is a level whose copies are new sandboxes.
type copier struct{ writer }

func (c copier) Restore(ctx context.Context, spec *sandbox.Spec, _ string) (sandbox.Instance, error) {
	return c.Start(ctx, spec)
}

// What was changed in a copy was changed since the first sandbox was made.
func TestKeepChangesOfACopy(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}
	dir := t.TempDir()
	h := newHome(t, func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": copier{writer{d}}}
		o.Policies = map[string]*policy.File{"": policyOf(t, "version: 1\nfiles: {workspace: {source: "+dir+"}}\n")}
	})
	first := h.create(t, Create{})
	copies, err := h.Handle(h.key, first.ID).Fork(t.Context(), 1, 0)
	if err != nil || copies[0].Err != nil {
		t.Fatal(err, copies)
	}
	second := copies[0].Sandbox
	if first.Workspace == nil || second.Workspace == nil || !second.Workspace.Began.Equal(first.Workspace.Began) {
		t.Errorf("%v, %v", first.Workspace, second.Workspace)
	}
}

// recorded says whether the record has a call of a kind on a sandbox that ended so.
func recorded(t *testing.T, h *home, kind, id string, status audit.Status) bool {
	t.Helper()
	for r, err := range h.log.Query(t.Context(), audit.Filter{Kind: kind}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call.Sandbox == id && r.Ending != nil && r.Ending.Status == status {
			return true
		}
	}
	return false
}

func mustSession(t *testing.T, h *home) *session.Session {
	t.Helper()
	g, err := h.grants.of(h.key)
	if err != nil {
		t.Fatal(err)
	}
	return g.session
}
