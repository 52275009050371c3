// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/session"
)

// No key of this server's reaches a program inside, however it was sent; what is
// the program's own does.
func TestKeysAreTakenOff(t *testing.T) {
	const given = "the-operators-own-key-of-many-letters"
	keys, err := session.OpenKeys(nil, given)
	if err != nil {
		t.Fatal(err)
	}
	made := "e2b_" + strings.Repeat("a", 40)
	for _, c := range []struct {
		header string
		values []string
		kept   bool
	}{
		{"X-Api-Key", []string{made}, false},
		{"X-Api-Key", []string{given}, false},
		{"X-Api-Key", []string{"own", made}, false},
		{"X-Api-Key", []string{"own"}, true},
		{"Authorization", []string{"Bearer " + made}, false},
		{"Authorization", []string{"bearer  " + made}, false},
		{"Authorization", []string{"Bearer " + given}, false},
		{"Authorization", []string{made}, false},
		{"Authorization", []string{"Bearer own"}, true},
	} {
		in := httptest.NewRequest("GET", "/", nil)
		in.Header[c.header] = c.values
		r := &httputil.ProxyRequest{In: in, Out: in.Clone(t.Context())}
		(&port{box: &session.Sandbox{ID: "i"}, number: 1, keys: keys}).rewrite(r)
		if _, kept := r.Out.Header[c.header]; kept != c.kept {
			t.Errorf("%s: %q: kept is %t", c.header, c.values, kept)
		}
	}
}
