// SPDX-License-Identifier: Apache-2.0

package session

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// layerOf is a tar stream of files.
func layerOf(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// changing is a session whose programs change files in the workspace dir, which it makes.
func changing(t *testing.T, files map[string]string) (b *bench, dir string, make func() *Call) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := &stub{
		caps: func(c *sandbox.Capabilities) { c.Changes = true },
		prog: func(_ context.Context, s *sandbox.Spec, _ *sandbox.Exec) (*sandbox.Result, error) {
			if files != nil && s.OnChanges != nil {
				_ = s.OnChanges("/workspace", layerOf(t, files)) // which the session has
			}
			return exited(0), nil
		},
	}
	return newBench(t, d, nil), dir, func() *Call {
		return call(t, func(c *Call) {
			c.Workspace, c.Changes.Keep = &policy.MountWish{Source: dir, Access: sandbox.CopyOnWrite}, true
		})
	}
}

// What a run changed is kept, and nothing of it is on the host before it is applied, which
// is in the record.
func TestKeptChanges(t *testing.T) {
	b, dir, call := changing(t, map[string]string{"a": "two", "new": "x"})
	res, err := b.Do(t.Context(), call(), IO{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Changes == nil || res.Changes.ID == "" || res.Changes.Files != 2 || res.Changes.Problem != "" {
		t.Fatalf("%+v", res.Changes)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a")); string(text) != "one" {
		t.Errorf("before it is applied the host has %q, %v", text, err)
	}
	if _, err := b.ApplyChanges(t.Context(), call(), res.Changes.ID, changes.ApplyOptions{Digest: "another"}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("another digest: %v", err)
	}
	stranger := call()
	stranger.Operator, stranger.Account = false, "key"
	for what, err := range map[string]error{
		"apply": func() error {
			_, err := b.ApplyChanges(t.Context(), stranger, res.Changes.ID, changes.ApplyOptions{Digest: res.Changes.Digest})
			return err
		}(),
		"drop": b.DropChanges(t.Context(), stranger, res.Changes.ID),
	} {
		if !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("a key's %s of the operator's set: %v", what, err)
		}
	}
	applied, err := b.ApplyChanges(t.Context(), call(), res.Changes.ID, changes.ApplyOptions{Digest: res.Changes.Digest})
	if err != nil || len(applied.Paths) != 2 {
		t.Fatalf("%+v, %v", applied, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a")); string(text) != "two" {
		t.Errorf("after it the host has %q, %v", text, err)
	}
	recorded := 0
	for r, err := range b.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Ending == nil || r.Ending.Result == nil {
			continue
		}
		if c := r.Ending.Result.Changes; r.Call.Kind == KindApplyChanges && c != nil && c.Digest == res.Changes.Digest && len(c.Applied) == 2 {
			recorded++
		}
	}
	if recorded != 1 {
		t.Errorf("%d records of what was applied", recorded)
	}
}

// Where the layer was not told the result says that nothing was kept.
func TestChangesNotTold(t *testing.T) {
	b, _, call := changing(t, nil)
	res, err := b.Do(t.Context(), call(), IO{})
	if err != nil || res.Changes == nil || res.Changes.ID != "" || res.Changes.Problem == "" {
		t.Errorf("%+v, %v", res, err)
	}
}

// Changes are kept only when that was asked for.
func TestChangesNotAsked(t *testing.T) {
	b, _, call := changing(t, map[string]string{"a": "two"})
	c := call()
	c.Changes = policy.ChangesWish{}
	res, err := b.Do(t.Context(), c, IO{})
	if err != nil || res.Changes != nil {
		t.Errorf("%+v, %v", res, err)
	}
}

// A level that tells no changes is refused by name where they are wanted by all means.
func TestChangesUnsupported(t *testing.T) {
	b, _, call := changing(t, nil)
	b.o.Drivers["gvisor"].(*stub).caps = nil
	c := call()
	c.Changes.Required = true
	if _, err := b.Do(t.Context(), c, IO{}); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "changes") {
		t.Errorf("%v", err)
	}
	c, said := call(), ""
	c.OnNotice = func(s string) { said += s }
	if res, err := b.Do(t.Context(), c, IO{}); err != nil || res.Changes != nil || !strings.Contains(said, "not kept") {
		t.Errorf("%+v, %v, %q", res, err, said)
	}
}

// The program's time is over when its changes are read: reading them may take longer.
func TestChangesTakeNoTime(t *testing.T) {
	ended := false
	k := &keeper{ctx: t.Context(), source: changes.Source{Target: "/w"}, ended: func() { ended = true }}
	store, err := changes.Open(filepath.Join(t.TempDir(), "changes"), changes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k.store = store
	if k.source.Root, err = os.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer k.source.Root.Close()
	read := false
	_ = k.take("/w", readerFunc(func([]byte) (int, error) {
		read = true
		if !ended {
			t.Error("the layer is read before the clock has stopped")
		}
		return 0, io.EOF
	}))
	if !read {
		t.Error("the layer was not read")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
