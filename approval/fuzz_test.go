// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// IDs, tokens and credentials come from who asks: each is known, or is refused.
func FuzzNames(f *testing.F) {
	s, err := Open(f.Context(), Options{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	subject := &Subject{Actor: "a", Kind: "run_command", Argv: []string{"true"}}
	r, token, err := s.Ask(f.Context(), Wish{Subject: subject, Channels: []Channel{CLI}, Timeout: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	_, credential, err := s.Enroll(f.Context(), Who{}, "ada")
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{r.ID, r.ID[:8], token, credential, "apv_*", "apv_????", "apv_[a-z]", "' OR 1=1 --", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := s.Get(t.Context(), text)
		switch {
		case err == nil && !strings.HasPrefix(got.ID, "apv_"+strings.TrimPrefix(strings.ToLower(text), "apv_")):
			t.Errorf("%q is %s", text, got.ID)
		case err != nil && !errors.Is(err, sandbox.ErrNotFound):
			t.Errorf("%q: %v", text, err)
		}
		if who, err := s.Authenticate(t.Context(), text, CLI); (err == nil) != (text == credential) {
			t.Errorf("%q is the credential of %v, %v", text, who, err)
		}
		if _, err := s.Presented(t.Context(), "a", text); (err == nil) != (text == token) {
			t.Errorf("%q is a token: %v", text, err)
		}
	})
}
