// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// aTemplate keeps a template of an owner of a few programs.
func (h *home) aTemplate(t *testing.T, owner, name, digit string, c image.Config) {
	t.Helper()
	images, err := h.images()
	if err != nil {
		t.Fatal(err)
	}
	b, err := images.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Put(t.Context(), bytes.NewReader(imagetest.Programs(t, "sh", "sleep", "cat"))); err != nil {
		t.Fatal(err)
	}
	built, err := b.Finish(t.Context(), "sha256:"+strings.Repeat(digit, 64), c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := reference.Parse("template:" + name)
	if err == nil {
		err = images.Name(r, owner, built)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A key has its own templates, whatever its policy lists, and those of the operator that its
// policy lists; never another key's.
func TestTemplateOfWhom(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) {
		file, err := policy.Parse("p.yaml", []byte("version: 1\nimages: [\"template:open*\"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		o.Policies = map[string]*policy.File{"": file}
	})
	other := h.newKey(t, "other")
	h.aTemplate(t, h.key.ID, "mine", "1", image.Config{})
	h.aTemplate(t, other.ID, "theirs", "2", image.Config{})
	h.aTemplate(t, "", "open", "3", image.Config{})
	h.aTemplate(t, "", "closed", "4", image.Config{})
	for name, want := range map[string]error{
		"mine": nil, "mine:default": nil, "open": nil, "theirs": sandbox.ErrNotFound, "closed": sandbox.ErrDenied,
		"none": sandbox.ErrNotFound, "mine:old": sandbox.ErrNotFound, "../mine": sandbox.ErrNotFound, "": nil,
	} {
		s, err := h.Create(t.Context(), h.key, Create{Template: name})
		if !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil && name != "" && !strings.HasPrefix(s.Image, "template:") {
			t.Errorf("%q is made of %q", name, s.Image)
		}
	}
}

// What a template starts runs before the sandbox is handed out, which waits until it is
// ready. One that is not leaves nothing.
func TestTemplateStarts(t *testing.T) {
	h := newHome(t, nil)
	h.aTemplate(t, h.key.ID, "server", "1", image.Config{Start: "echo yes >~/started; sleep 1000", Ready: "test -s ~/started"})
	h.aTemplate(t, h.key.ID, "broken", "2", image.Config{Ready: "kill -9 $PPID"})
	s := h.create(t, Create{Template: "server"})
	call := &session.Call{}
	call.Argv = []string{"sh", "-c", "cat ~/started"}
	if res, err := h.Handle(h.key, s.ID).Exec(t.Context(), call, session.IO{}); err != nil || string(res.Stdout) != "yes\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(t.Context(), h.key, Create{Template: "broken"}); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "ready") {
		t.Error(err)
	}
	if page, err := h.List(t.Context(), h.key, Filter{}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}
