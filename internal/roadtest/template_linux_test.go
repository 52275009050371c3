// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/session/persistent"
)

// A template of a key is the root of its sandbox, home and all, and what it starts runs when
// the sandbox is handed out.
func TestTemplateOnGVisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	l := openLiving(t, dir, "gvisor", func(o *persistent.SandboxesOptions) { o.EndOnClose = true })
	images, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := images.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, layer := range [][]byte{imagetest.Programs(t, "sh", "sleep", "cat"), imagetest.Layer(t, "tmp/", "home/", "home/user/", "home/user/note=of the template\n", "made=here\n")} {
		if err := b.Put(t.Context(), bytes.NewReader(layer)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := b.Finish(t.Context(), "sha256:"+strings.Repeat("1", 64), image.Config{Start: "echo started >/tmp/started; sleep 1000", Ready: "test -s /tmp/started"})
	if err != nil {
		t.Fatal(err)
	}
	if err := images.Name(reference.Ref{Kind: reference.Template, Name: "mine", Tag: "default"}, l.key.ID, built); err != nil {
		t.Fatal(err)
	}
	s, err := l.Create(t.Context(), l.key, persistent.Create{Template: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.sh(t, s.ID, "cat /made ~/note /tmp/started"); got != "here\nof the template\nstarted" {
		t.Errorf("%q", got)
	}
}
