// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/sandbox/faketest"
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

// newWorkspace is a frontend whose keys have a copy-on-write workspace, which is given, in
// which src/a, b and Makefile are written; more is added to the policy.
func newWorkspace(t *testing.T, more string) (d *frontend, dir string) {
	t.Helper()
	dir = t.TempDir()
	level := &faketest.Driver{Agent: true, Changes: layerOf(t, "Makefile", "all:\n", "b", "be\n", "src/a", "text \u202e\n")}
	s := apitest.StartOn(t, level, "version: 1\nfiles: {workspace: {source: "+dir+"}}\n"+more)
	return &frontend{s.URL, s.Key, s.Other}, dir
}

// keep has a run keep what it changed, and gives the set.
func (d *frontend) keep(t *testing.T) map[string]any {
	t.Helper()
	status, a := d.ask(t, "POST", "/v1/runs", `{"command":["true"],"changes":{"keep":true}}`)
	kept, ok := a["changes"].(map[string]any)
	if status != 200 || !ok || kept["files"] != 3.0 {
		t.Fatalf("%d %v", status, a)
	}
	return kept
}

func TestChanges(t *testing.T) {
	d, _ := newWorkspace(t, "")
	if status, a := d.ask(t, "POST", "/v1/runs", `{"command":["true"]}`); status != 200 || a["changes"] != nil {
		t.Errorf("kept unasked: %d %v", status, a)
	}
	id := d.keep(t)["id"].(string)
	status, a := d.ask(t, "GET", "/v1/changes/"+id+"?limit=2", "")
	entries := a["entries"].([]any)
	if status != 200 || len(entries) != 2 || a["next"] == nil || entries[0].(map[string]any)["held"] == nil {
		t.Errorf("%d %v", status, a)
	}
	if _, a = d.ask(t, "GET", "/v1/changes/"+id+"?limit=2&cursor="+a["next"].(string), ""); len(a["entries"].([]any)) == 0 {
		t.Errorf("the next page: %v", a)
	}
	resp, b := d.raw(t, "GET", "/v1/changes/"+id+"/patch?path=src", "")
	if text := string(b); resp.StatusCode != 200 || !strings.Contains(text, "+text") || strings.Contains(text, "\u202e") || strings.Contains(text, "all:") {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	if status, a := d.ask(t, "GET", "/v1/changes/"+id+"/patch?path=none", ""); status < 400 {
		t.Errorf("%d %v", status, a)
	}
	if resp, b := d.raw(t, "GET", "/v1/changes/"+id+"/files?path=b", ""); resp.StatusCode != 200 || string(b) != "be\n" {
		t.Errorf("%d %q", resp.StatusCode, b)
	}
	if status, a := d.ask(t, "GET", "/v1/changes/"+id+"/files?path=../b", ""); status != 404 {
		t.Errorf("%d %v", status, a)
	}
	if resp, _ := d.raw(t, "DELETE", "/v1/changes/"+id, ""); resp.StatusCode != 204 {
		t.Errorf("%d", resp.StatusCode)
	}
	if _, a := d.ask(t, "GET", "/v1/changes", ""); len(a["changes"].([]any)) != 0 {
		t.Errorf("%v", a)
	}
}

// A set of another key is not there, whatever is asked of it.
func TestChangesOfAnotherKey(t *testing.T) {
	d, _ := newWorkspace(t, "changes: {apply: [\"none/**\"]}\n")
	kept := d.keep(t)
	id, digest := kept["id"].(string), kept["digest"].(string)
	for _, r := range [][3]string{
		{"GET", "", ""}, {"GET", "/patch", ""}, {"GET", "/files?path=b", ""}, {"DELETE", "", ""}, {"POST", "/apply", `{"digest":"` + digest + `"}`},
	} {
		if status, a := d.ask(t, r[0], "/v1/changes/"+id+r[1], r[2], "X-API-Key", d.other); status != 404 {
			t.Errorf("%s %s: %d %v", r[0], r[1], status, a)
		}
	}
	if _, a := d.ask(t, "GET", "/v1/changes", "", "X-API-Key", d.other); len(a["changes"].([]any)) != 0 {
		t.Errorf("it is listed: %v", a)
	}
	if _, a := d.ask(t, "GET", "/v1/changes", ""); len(a["changes"].([]any)) != 1 {
		t.Errorf("its own key has it no longer: %v", a)
	}
	box := d.create(t, "{}")
	if status, a := d.ask(t, "POST", "/v1/sandboxes/"+box+"/changes", "", "X-API-Key", d.other); status != 404 {
		t.Errorf("%d %v", status, a)
	}
	if status, a := d.ask(t, "POST", "/v1/sandboxes/"+box+"/changes", ""); status != 200 || a["changes"].(map[string]any)["files"] != 3.0 {
		t.Errorf("%d %v", status, a)
	}
}

// What is applied is what the policy says, and no more.
func TestApplyChanges(t *testing.T) {
	has := func(dir, name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	t.Run("no rule", func(t *testing.T) {
		d, dir := newWorkspace(t, "")
		kept := d.keep(t)
		status, a := d.ask(t, "POST", "/v1/changes/"+kept["id"].(string)+"/apply", `{"digest":"`+kept["digest"].(string)+`"}`)
		if status != 403 || a["hint"] == nil || has(dir, "b") {
			t.Errorf("%d %v", status, a)
		}
	})
	t.Run("by rule", func(t *testing.T) {
		d, dir := newWorkspace(t, "changes: {apply: [\"src/**\", Makefile]}\n")
		box := d.create(t, "{}")
		_, a := d.ask(t, "POST", "/v1/sandboxes/"+box+"/changes", "{}")
		kept := a["changes"].(map[string]any)
		at, digest := "/v1/changes/"+kept["id"].(string)+"/apply", kept["digest"].(string)
		if has(dir, "src/a") {
			t.Error("applied unasked")
		}
		if status, a := d.ask(t, "POST", at, "{}"); status != 422 && status != 400 {
			t.Errorf("without a digest: %d %v", status, a)
		}
		if status, a := d.ask(t, "POST", at, `{"digest":"`+strings.Repeat("0", 64)+`"}`); status < 400 || has(dir, "src/a") {
			t.Errorf("another digest: %d %v", status, a)
		}
		if status, a := d.ask(t, "POST", at, `{"digest":"`+digest+`","paths":["b"]}`); status < 400 || has(dir, "b") {
			t.Errorf("what no rule names: %d %v", status, a)
		}
		if status, a := d.ask(t, "POST", at, `{"digest":"`+digest+`","paths":["Makefile"]}`); status < 400 || has(dir, "Makefile") {
			t.Errorf("what is held back: %d %v", status, a)
		}
		status, a := d.ask(t, "POST", at, `{"digest":"`+digest+`"}`)
		if status != 200 || !has(dir, "src/a") || has(dir, "b") || has(dir, "Makefile") {
			t.Errorf("%d %v", status, a)
		}
	})
}
