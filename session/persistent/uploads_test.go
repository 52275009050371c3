// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/template"
)

// What a client sends is unpacked where it belongs and nowhere else: links stay links, and
// none is followed out of it.
func TestUploadsAreUnpacked(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lines []any
		fails bool
	}{
		"plain":               {[]any{"dir/", "dir/file=text", "other/deep/file=text"}, false},
		"links":               {[]any{"absolute->" + outside, "dangling->nowhere", "up->../../x", "dir/", "in->dir", "in/file=text"}, false},
		"through a link":      {[]any{"out->" + outside, "out/file=text"}, true},
		"through links":       {[]any{"up->..", "up/file=text"}, true},
		"over a link":         {[]any{"file->" + outside + "/file", "file=text"}, true},
		"a directory of one":  {[]any{"out->" + outside, "out/dir/"}, true},
		"a relative name":     {[]any{"../file=text"}, true},
		"an absolute name":    {[]any{outside + "/file=text"}, true},
		"a hard link":         {[]any{"file=>" + outside + "/x"}, true},
		"a device":            {[]any{tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}}, true},
		"the mode of outside": {[]any{"out->" + outside, tar.Header{Typeflag: tar.TypeDir, Name: "out", Mode: 0o777}}, true},
	} {
		for _, packed := range []bool{false, true} {
			archive := imagetest.Layer(t, c.lines...)
			if packed {
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				z.Write(archive)
				z.Close()
				archive = b.Bytes()
			}
			_, err := unpackUpload(t.TempDir(), bytes.NewReader(archive))
			if (err != nil) != c.fails || err != nil && !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	list, err := os.ReadDir(outside)
	info, serr := os.Stat(outside)
	if err != nil || serr != nil || len(list) != 0 || info.Mode().Perm() != 0o700 {
		t.Errorf("outside there is %v, %v, %v", list, err, info)
	}
}

// An address to send files to is good once, for the key that asked for it.
func TestTickets(t *testing.T) {
	h := newHome(t, nil)
	other := h.newKey(t, "other")
	hash := strings.Repeat("a", 64)
	token, present, err := h.TemplatesOf(h.key).Ticket(hash)
	if err != nil || present {
		t.Fatal(present, err)
	}
	archive := imagetest.Layer(t, "file=text")
	if err := h.Upload(token+"x", bytes.NewReader(archive)); !errors.Is(err, sandbox.ErrDenied) {
		t.Error(err)
	}
	if err := h.Upload(token, bytes.NewReader(archive)); err != nil {
		t.Fatal(err)
	}
	if err := h.Upload(token, bytes.NewReader(archive)); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("again: %v", err)
	}
	if _, present, err := h.TemplatesOf(h.key).Ticket(hash); !present || err != nil {
		t.Error(present, err)
	}
	if _, present, err := h.TemplatesOf(other).Ticket(hash); present || err != nil {
		t.Errorf("another key has it: %t, %v", present, err)
	}
	late, _, err := h.TemplatesOf(h.key).Ticket(strings.Repeat("b", 64))
	if err != nil {
		t.Fatal(err)
	}
	h.clock.move(uploadTicket + 1)
	if err := h.Upload(late, bytes.NewReader(archive)); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("late: %v", err)
	}
}

// An archive that breaks off, as its client went away, is none, and leaves nothing.
func TestUploadBreaksOff(t *testing.T) {
	h := newHome(t, nil)
	of, hash := h.TemplatesOf(h.key), strings.Repeat("a", 64)
	archive := imagetest.Layer(t, "one=text", "two="+strings.Repeat("text", 1000))
	gone := errors.New("it went away")
	token, _, err := of.Ticket(hash)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Upload(token, io.MultiReader(bytes.NewReader(archive[:len(archive)/2]), iotest.ErrReader(gone))); !errors.Is(err, gone) {
		t.Error(err)
	}
	if _, present, err := of.Ticket(hash); present || err != nil {
		t.Errorf("half of it is there: %t, %v", present, err)
	}
	if left, err := os.ReadDir(filepath.Join(h.claim.Path(), uploadsDir)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// What was sent goes an hour after its last use, but not from under a build.
func TestUploadsAreDropped(t *testing.T) {
	h := newHome(t, nil)
	of, hash := h.TemplatesOf(h.key), strings.Repeat("a", 64)
	token, _, err := of.Ticket(hash)
	if err == nil {
		err = h.Upload(token, bytes.NewReader(imagetest.Layer(t, "file=text")))
	}
	if err != nil {
		t.Fatal(err)
	}
	there := func(want bool) {
		t.Helper()
		h.builds.mu.Lock()
		_, have := h.builds.uploads.sent[uploadName{h.key.ID, hash}]
		h.builds.mu.Unlock()
		left, _ := os.ReadDir(filepath.Join(h.claim.Path(), uploadsDir))
		if have != want || len(left) == 1 != want {
			t.Errorf("it is there: %t, %v", have, left)
		}
	}
	h.clock.move(keepUpload)
	there(true)
	if root, err := of.openUpload(hash); err != nil || root.Close() != nil {
		t.Fatal(err)
	}
	h.clock.move(keepUpload)
	there(true)
	h.builds.mu.Lock()
	h.builds.all = append(h.builds.all, &ownedBuild{owner: h.key.ID, BuildRecord: BuildRecord{State: BuildRunning}})
	h.builds.mu.Unlock()
	h.clock.move(dropUploadsEvery)
	there(true)
	h.builds.mu.Lock()
	h.builds.all = nil
	h.builds.mu.Unlock()
	h.clock.move(dropUploadsEvery)
	there(false)
}

// A key has as many templates as its quota lets it, and as large ones: what is known to be
// too much is not begun. A name that is given anew takes no further place.
func TestTemplatesAreCounted(t *testing.T) {
	h := newHome(t, func(o *SandboxesOptions) {
		p := DefaultProfile()
		p.Quota.Templates, p.Quota.TemplateSize = 2, 1<<40
		o.Profiles = map[string]Profile{"": p}
	})
	of := h.TemplatesOf(h.key)
	h.aTemplate(t, h.key.ID, "one", "1", image.Config{})
	h.aTemplate(t, "", "operators", "2", image.Config{})
	if err := of.Tag("one", []string{"a"}); err != nil {
		t.Error(err)
	}
	if err := of.Tag("one", []string{"a"}); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := of.Tag("one", []string{"b"}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Error(err)
	}
	b, err := of.Begin("another", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := of.Run("another", b.ID, BuildWish{From: template.Base{Kind: template.Template, Name: "one"}}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Error(err)
	}
	images, err := h.images()
	if err != nil {
		t.Fatal(err)
	}
	list, err := of.List()
	if err != nil {
		t.Fatal(err)
	}
	built, names := list[0].Image, b.Tags
	q := Quota{Templates: 10, TemplateSize: built.Size}
	if err := of.name(images, q, (&ownedBuild{BuildRecord: BuildRecord{Name: "another", Tags: names}}).names(), built); err != nil {
		t.Errorf("files that are counted once: %v", err)
	}
	larger := *built
	larger.Digest, larger.Size = "sha256:"+strings.Repeat("9", 64), 1
	if err := of.fits(images, q, (&ownedBuild{BuildRecord: BuildRecord{Name: "more", Tags: names}}).names(), &larger); !errors.Is(err, sandbox.ErrExhausted) {
		t.Error(err)
	}
}

// A build is its key's alone, and pulls nothing that no policy names.
func TestBuildOfWhom(t *testing.T) {
	h := newHome(t, nil)
	mine, theirs := h.TemplatesOf(h.key), h.TemplatesOf(h.newKey(t, "other"))
	b, err := mine.Begin("mine", []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Build("mine", b.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
	if err := theirs.Run("mine", b.ID, BuildWish{From: template.Base{Kind: template.Template, Name: "x"}}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
	for _, kind := range []template.Base{{Kind: template.Image, Name: "debian:13"}, {Kind: template.Host}} {
		if err := mine.Run("mine", b.ID, BuildWish{From: kind}); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%+v: %v", kind, err)
		}
	}
}
