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
	h.aTemplate(t, "", "shared", "5", image.Config{})
	h.aTemplate(t, "", "unshared", "6", image.Config{})
	h.share(t, "shared", true)
	h.share(t, "unshared", true)
	h.aTemplate(t, "", "shared", "7", image.Config{}) // it is built anew
	h.share(t, "unshared", false)
	for name, want := range map[string]error{
		"mine": nil, "mine:default": nil, "open": nil, "theirs": sandbox.ErrNotFound, "closed": sandbox.ErrDenied, "shared": nil, "unshared": sandbox.ErrDenied,
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

// A template that is shared is for keys without a policy, too, and is listed for them until
// they have one of the name themselves.
func TestTemplateShared(t *testing.T) {
	h := newHome(t, nil)
	h.aTemplate(t, "", "shared", "1", image.Config{})
	if _, err := h.Create(t.Context(), h.key, Create{Template: "shared"}); !errors.Is(err, sandbox.ErrDenied) {
		t.Error(err)
	}
	h.share(t, "shared", true)
	if s := h.create(t, Create{Template: "shared"}); s.Image != "template:shared:default" {
		t.Errorf("%q", s.Image)
	}
	of := h.TemplatesOf(h.key)
	if list, err := of.Shared(); err != nil || len(list) != 1 || list[0].Name != "shared" {
		t.Errorf("%+v, %v", list, err)
	}
	h.aTemplate(t, h.key.ID, "shared", "2", image.Config{})
	if list, err := of.Shared(); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := of.List(); err != nil || len(list) != 1 || list[0].Shared {
		t.Errorf("%+v, %v", list, err)
	}
}

func (h *home) share(t *testing.T, name string, with bool) {
	t.Helper()
	images, err := h.images()
	if err != nil {
		t.Fatal(err)
	}
	r, err := reference.Parse("template:" + name)
	if err == nil {
		err = images.Share(r, with)
	}
	if err != nil {
		t.Fatal(err)
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
