// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// FuzzKey: a token is found by itself and nothing else, a key is revoked by what names
// it, and what was kept comes back as it was.
func FuzzKey(f *testing.F) {
	f.Add(TokenPrefix+"0123456789abcdef", TokenPrefix+"0123456789abcdeF", "ci", "p", "q")
	f.Add("", " ", "", "", "")
	f.Add("a\x00b", "a", "n\x00m", "%", "_")
	f.Add("x' OR '1'='1", "x", "\xff", "é", "e\u0301")
	db := openHere(f, f.TempDir())
	f.Fuzz(func(t *testing.T, token, other, name, policy, profile string) {
		k := Key{ID: NewID("k", 10), Name: name, Policy: policy, Profile: profile, Created: time.UnixMilli(1).UTC()}
		if err := db.AddKey(t.Context(), k, token); err != nil {
			t.Skip(err) // another has this token
		}
		defer func() {
			if _, err := db.db.ExecContext(t.Context(), "DELETE FROM keys"); err != nil {
				t.Error(err)
			}
		}()
		if got, err := db.KeyOf(t.Context(), token); err != nil || *got != k {
			t.Fatalf("%q: %+v, %v, not %+v", token, got, err, k)
		}
		if got, err := db.KeyOf(t.Context(), other); other != token && !errors.Is(err, sandbox.ErrDenied) {
			t.Fatalf("%q is taken for %q: %+v, %v", other, token, got, err)
		}
		if err := db.AddKey(t.Context(), Key{ID: NewID("k", 10)}, token); err == nil {
			t.Fatal("two keys have one token")
		}
		if _, err := db.RevokeKey(t.Context(), other, time.Now()); other != name && other != k.ID && !errors.Is(err, sandbox.ErrNotFound) {
			t.Fatalf("%q revokes %q: %v", other, name, err)
		}
		if _, err := db.RevokeKey(t.Context(), k.ID, time.Now()); other != name && err != nil {
			t.Fatal(err)
		}
		if got, err := db.KeyOf(t.Context(), token); !errors.Is(err, sandbox.ErrDenied) {
			t.Fatalf("a revoked key is one: %+v, %v", got, err)
		}
	})
}
