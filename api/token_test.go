// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"testing"
)

func TestToken(t *testing.T) {
	for _, c := range []struct{ key, authorization, token, bearer string }{
		{"", "", "", ""},
		{"k", "", "k", ""},
		{"", "Bearer b", "b", "b"},
		{"", "bearer b", "b", "b"},
		{"", "BEARER   b", "b", "b"},
		{"k", "Bearer b", "k", "b"},
		{"k", "Basic b", "k", ""},
		{"", "Basic b", "", ""},
		{"", "Bearer", "", ""},
		{"", "Bearer ", "", ""},
		{"", "Bearerb", "", ""},
		{"", " Bearer b", "", ""},
		{"", "b", "", ""},
	} {
		h := http.Header{}
		h.Set("x-api-key", c.key)
		h.Set("authorization", c.authorization)
		if token, bearer := Token(h), Bearer(h); token != c.token || bearer != c.bearer {
			t.Errorf("%q, %q: token %q, bearer %q, want %q and %q", c.key, c.authorization, token, bearer, c.token, c.bearer)
		}
	}
}
