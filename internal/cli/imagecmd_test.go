// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/session/registry"
)

// The registry is opened once for all images, and not before it is asked for.
func TestGoesOnOpensOnce(t *testing.T) {
	state := t.TempDir()
	goes, done := goesOn(state)
	if got, err := goes("sha256:paused"); err != nil || got { // there is none yet
		t.Errorf("%v, %v", got, err)
	}
	db, err := registry.Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Put(t.Context(), &registry.Sandbox{ID: "i1", Owner: "k1", State: registry.Paused, ImageDigest: "sha256:paused"}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	ask := func() {
		t.Helper()
		for digest, want := range map[string]bool{"sha256:paused": true, "sha256:other": false} {
			if got, err := goes(digest); err != nil || got != want {
				t.Errorf("%s: %v, %v", digest, got, err)
			}
		}
	}
	ask()
	name := filepath.Join(state, "registry.db")
	if err := os.Rename(name, name+".open"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name, 0o700); err != nil { // no registry can be opened here any more
		t.Fatal(err)
	}
	ask()
	if err := done(); err != nil {
		t.Error(err)
	}
	if got, err := goesOf(state, "sha256:paused"); err == nil || got {
		t.Errorf("opened again: %v, %v", got, err)
	}
}

// goesOf asks anew.
func goesOf(state, digest string) (bool, error) {
	goes, done := goesOn(state)
	defer done()
	return goes(digest)
}
