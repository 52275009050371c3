// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"
	"time"
)

// Sandboxes that have not ended, and snapshots, go on with their images.
func TestGoesOn(t *testing.T) {
	db := openHere(t, t.TempDir())
	for id, s := range map[string]*Sandbox{
		"i1": {State: Running, ImageDigest: "sha256:runs"},
		"i2": {State: Paused, ImageDigest: "sha256:paused"},
		"i3": {State: Ended, EndedAt: time.UnixMilli(1), ImageDigest: "sha256:ended"},
		"i4": {State: Running},
	} {
		s.ID, s.Owner = id, "k1"
		if err := db.Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.PutSnapshot(t.Context(), &Snapshot{ID: "s1", Owner: "k1", Sandbox: &Sandbox{ID: "i3", ImageDigest: "sha256:written"}}); err != nil {
		t.Fatal(err)
	}
	for digest, want := range map[string]bool{
		"sha256:runs": true, "sha256:paused": true, "sha256:written": true, "sha256:ended": false, "sha256:run": false, "": false,
	} {
		if got, err := db.GoesOn(t.Context(), digest); err != nil || got != want {
			t.Errorf("%q: %v, %v", digest, got, err)
		}
	}
}
