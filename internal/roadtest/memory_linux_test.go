// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/session/persistent"
)

// sharedTemplate is one of the operator's that every key may have.
func sharedTemplate(t *testing.T, dir, name string, c image.Config) {
	t.Helper()
	images, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := images.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, layer := range [][]byte{imagetest.Programs(t, "sh", "sleep", "cat", "head", "od", "date"), imagetest.Layer(t, "tmp/", "home/", "home/user/")} {
		if err := b.Put(t.Context(), bytes.NewReader(layer)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := b.Finish(t.Context(), "sha256:"+strings.Repeat("1", 64), c)
	if err != nil {
		t.Fatal(err)
	}
	r := reference.Ref{Kind: reference.Template, Name: name, Tag: "default"}
	if err := images.Name(r, "", built); err != nil {
		t.Fatal(err)
	}
	if err := images.Share(r, true); err != nil {
		t.Fatal(err)
	}
}

const drawn = "cat /proc/sys/kernel/random/uuid"

// TestMemoryOfATemplateOnGVisor: what a template starts is kept in memory once, and its
// sandboxes go on from there, of each key; they share what was drawn before, and nothing that
// is drawn afterwards. One with variables of its own begins anew.
func TestMemoryOfATemplateOnGVisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	l := openLiving(t, dir, "gvisor", func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	sharedTemplate(t, dir, "app", image.Config{Start: drawn + " >/tmp/drawn; echo $$ >/tmp/pid; exec sleep 1000", Ready: "test -s /tmp/pid"})
	other := &living{l.Sandboxes, &persistent.Key{ID: "kother", Name: "other"}, dir, l.reg}
	make := func(l *living, c persistent.Create) (id, started string) {
		t.Helper()
		c.Template = "app"
		began := time.Now()
		s, err := l.Create(t.Context(), l.key, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("made in %s", time.Since(began).Round(time.Millisecond))
		if got, want := l.sh(t, s.ID, "cat /proc/sys/kernel/hostname /etc/hostname"), s.Names.Host+"\n"+s.Names.Host; got != want {
			t.Errorf("it is called %q, want %q", got, want)
		}
		return s.ID, l.sh(t, s.ID, "cat /tmp/drawn; [ -d /proc/$(cat /tmp/pid) ]")
	}
	_, first := make(l, persistent.Create{})
	var a, b, drawnA, drawnB string
	for late := time.Now().Add(time.Minute); drawnA == "" || drawnA != drawnB; {
		if time.Now().After(late) {
			t.Fatal("each begins anew")
		}
		if a != "" {
			if err := l.Handle(l.key, a).Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		a, drawnA = b, drawnB
		b, drawnB = make(l, persistent.Create{})
	}
	if drawnA == first {
		t.Error("the memory is one of a sandbox that a caller got")
	}
	c, drawnC := make(other, persistent.Create{})
	if drawnC != drawnA {
		t.Error("another key's begins anew")
	}
	seen := map[string]bool{drawnA: true}
	for _, s := range []string{l.sh(t, a, drawn), l.sh(t, b, drawn), other.sh(t, c, drawn), l.sh(t, a, "head -c 16 /dev/urandom | od -An -tx1"), l.sh(t, b, "head -c 16 /dev/urandom | od -An -tx1")} {
		if s == "" || seen[s] {
			t.Errorf("%q is drawn twice", s)
		}
		seen[s] = true
	}
	l.sh(t, a, "echo mine >/tmp/file")
	l.sh(t, b, "[ ! -e /tmp/file ]")
	if _, own := make(l, persistent.Create{Env: map[string]string{"NAME": "value"}}); own == drawnA {
		t.Error("one with variables of its own has what was started without them")
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "kept", "*"))
	if len(kept) != 1 {
		t.Fatalf("%q are kept", kept)
	}
	spoil(t, filepath.Join(kept[0], "pages.img"))
	if _, anew := make(l, persistent.Create{}); anew == drawnA {
		t.Error("damaged memory is gone on with")
	}
}
