// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
)

// onImages is a level that writes down on which images its sandboxes begin, and go on.
type onImages struct {
	twofold
	restored []string // the digests
}

func (d *onImages) Restore(ctx context.Context, spec *sandbox.Spec, dir string) (sandbox.Instance, error) {
	d.restored = append(d.restored, spec.Root.Image.Digest)
	return d.twofold.Restore(ctx, spec, dir)
}

// What was written down goes on with the image that it was made of, when its template was
// built anew since or has lost its name; and that image stays when images are pruned. Where it is
// gone all the same, the level is asked with what the name means now.
func TestKeptGoesOnWithItsImage(t *testing.T) {
	d := &onImages{twofold: twofold{Driver: &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}}}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": d} })
	digest := func(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }
	h.aTemplate(t, h.key.ID, "app", "1", image.Config{})
	s := h.create(t, Create{Template: "app"})
	if s.ImageDigest != digest("1") {
		t.Fatalf("made of %q", s.ImageDigest)
	}
	handle := h.Handle(h.key, s.ID)
	snap, err := handle.Snapshot(t.Context(), "")
	if err == nil {
		_, err = handle.Pause(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	h.aTemplate(t, h.key.ID, "app", "2", image.Config{})

	images, err := h.images()
	if err != nil {
		t.Fatal(err)
	}
	pruned := func() (gone []string) {
		t.Helper()
		list, err := images.Prune(true)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			gone = append(gone, i.Digest)
		}
		return gone
	}
	if one, err := images.Find(digest("1")); err != nil || !one.InUse || !errors.Is(images.Remove(one), sandbox.ErrUnavailable) {
		t.Errorf("%+v, %v", one, err)
	}
	if gone := pruned(); slices.Contains(gone, digest("1")) {
		t.Error("its image is gone")
	}
	h.aTemplate(t, h.key.ID, "app", "3", image.Config{})
	if _, err := handle.Resume(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	c := h.create(t, Create{Snapshot: snap.ID})
	if c.ImageDigest != digest("1") {
		t.Errorf("a copy is made of %q", c.ImageDigest)
	}
	if err := h.Handle(h.key, c.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := h.create(t, Create{Template: "app"})
	if n.ImageDigest != digest("3") {
		t.Errorf("a new one is made of %q", n.ImageDigest)
	}
	if err := h.Handle(h.key, n.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.restored, []string{digest("1"), digest("1")}) {
		t.Errorf("went on on %q", d.restored)
	}

	if _, err := handle.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	lose(t, images, filepath.Join(h.o.State.Path(), "images"), digest("1"))
	if got, err := handle.Resume(t.Context(), 0); err != nil || got.ImageDigest != digest("3") || d.restored[2] != digest("3") {
		t.Errorf("%v, on %q", err, d.restored)
	}

	// The name is the operator's by now, and its policy does not let it have that.
	if _, err := handle.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	lose(t, images, filepath.Join(h.o.State.Path(), "images"), digest("3"))
	h.aTemplate(t, "", "app", "4", image.Config{})
	if got, err := handle.Resume(t.Context(), 0); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("went on with the operator's: %+v, %v", got, err)
	}
	if got, err := h.Create(t.Context(), h.key, Create{Snapshot: snap.ID}); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("a copy is made of the operator's: %+v, %v", got, err)
	}
}

// Files of a template that was built anew count while the key's sandboxes and snapshots go on
// with them; those of the operator's do not.
func TestKeptImagesAreCounted(t *testing.T) {
	d := &onImages{twofold: twofold{Driver: &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}}}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": d} })
	of, other := h.TemplatesOf(h.key), h.TemplatesOf(h.newKey(t, "other"))
	images, err := h.images()
	if err != nil {
		t.Fatal(err)
	}
	h.aTemplate(t, h.key.ID, "app", "1", image.Config{})
	list, err := of.List()
	if err != nil {
		t.Fatal(err)
	}
	next := *list[0].Image
	next.Digest = "sha256:" + strings.Repeat("2", 64)
	q := Quota{TemplateSize: next.Size} // room for one
	build := func(of *Templates) error {
		r, err := templateRef("app")
		if err != nil {
			t.Fatal(err)
		}
		return of.fits(images, q, []reference.Ref{r}, &next)
	}
	if err := build(of); err != nil {
		t.Errorf("what is not used gives way: %v", err)
	}
	s := h.create(t, Create{Template: "app"})
	snap, err := h.Handle(h.key, s.ID).Snapshot(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	refused := func(by string) {
		t.Helper()
		if err := build(of); !errors.Is(err, sandbox.ErrExhausted) || !strings.Contains(sandbox.Hint(err), by) || !strings.Contains(err.Error(), "earlier builds") {
			t.Errorf("%v (hint %q), want %s", err, sandbox.Hint(err), by)
		}
	}
	refused("sandbox " + s.ID + ", snapshot " + snap.ID)
	if err := build(other); err != nil {
		t.Errorf("another key's: %v", err)
	}
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("snapshot " + snap.ID)
	if err := h.DeleteSnapshot(t.Context(), h.key, snap.ID); err != nil {
		t.Fatal(err)
	}
	if err := build(of); err != nil {
		t.Errorf("what is gone counts: %v", err)
	}
}

// lose takes an image away that is used.
func lose(t *testing.T, images *image.Store, dir, digest string) {
	t.Helper()
	bare, err := image.OpenStore(dir)
	if err == nil {
		var one *image.Stored
		if one, err = images.Find(digest); err == nil {
			err = bare.Remove(one)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
