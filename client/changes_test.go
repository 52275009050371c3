// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
)

func TestChanges(t *testing.T) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	const text = "hello\n"
	err := w.WriteHeader(&tar.Header{Name: "a.txt", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))})
	if _, werr := io.WriteString(w, text); err != nil || werr != nil || w.Close() != nil {
		t.Fatal(err, werr)
	}
	dir, ctx := t.TempDir(), t.Context()
	s := apitest.StartOn(t, &faketest.Driver{Agent: true, Changes: layer.Bytes()}, "version: 1\nfiles: {workspace: {source: "+dir+"}}\nchanges: {apply: ['*.txt']}\n")
	c, err := client.New(client.Options{URL: s.URL, Key: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	kept, err := c.KeepChanges(ctx, make1(t, c, client.Create{}).ID, false)
	if err != nil || kept == nil || kept.Files != 1 {
		t.Fatalf("%+v, %v", kept, err)
	}
	list, err := c.ChangeSets(ctx)
	if err != nil || len(list) != 1 || list[0].ID != kept.ID || list[0].Digest != kept.Digest {
		t.Errorf("%+v, %v", list, err)
	}
	set, err := c.ChangeSet(ctx, kept.ID)
	if err != nil || len(set.Entries) != 1 || set.Entries[0].Path != "a.txt" || set.Entries[0].Op != "add" {
		t.Errorf("%+v, %v", set, err)
	}
	read := func(r io.ReadCloser, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(c.Patch(ctx, kept.ID, "")); !strings.Contains(got, "+hello") {
		t.Error(got)
	}
	if got := read(c.ReadChange(ctx, kept.ID, "a.txt")); got != text {
		t.Error(got)
	}
	applied, err := c.ApplyChanges(ctx, kept.ID, kept.Digest)
	if err != nil || len(applied.Paths) != 1 {
		t.Errorf("%+v, %v", applied, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a.txt")); string(b) != text {
		t.Errorf("%q, %v", b, err)
	}
	if err := c.DropChanges(ctx, kept.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.ChangeSet(ctx, kept.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("after it was removed: %v", err)
	}
	if _, err := c.ChangeSet(ctx, "../sandboxes"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("what is no ID: %v", err)
	}
	r, err := c.Run(ctx, client.Run{Exec: client.Exec{Command: []string{"true"}}, Changes: &client.Keeping{Keep: true}})
	if err != nil || r.Changes != nil { // the host has it so
		t.Errorf("%+v, %v", r, err)
	}
}
