// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/session/persistent"
)

// What programs get as HTTP/2 is what cannot be had otherwise, or was meant so.
func TestWantsHTTP2(t *testing.T) {
	for _, c := range []struct {
		major int
		tls   bool
		kind  string
		want  bool
	}{
		{1, false, "application/grpc", false},
		{1, true, "", false},
		{2, false, "", true},
		{2, true, "", false},
		{2, true, "application/grpc", true},
		{2, true, "application/grpc+json; charset=utf-8", true},
		{2, true, "application/grpc-web", false}, // which is made for HTTP/1.1
		{2, true, "application/json", false},
	} {
		r := &http.Request{ProtoMajor: c.major, Header: http.Header{"Content-Type": {c.kind}}}
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if got := wantsHTTP2(r); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// No key of this server's reaches a program inside, however it was sent; what is
// the program's own does.
func TestKeysAreTakenOff(t *testing.T) {
	const given = "the-operators-own-key-of-many-letters"
	keys, err := persistent.OpenKeys(nil, given)
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
		{"X-Access-Token", []string{"the sandbox's"}, false},
		{"X-Access-Token", []string{"own", "the sandbox's"}, false},
		{"X-Access-Token", []string{"own"}, true},
	} {
		in := httptest.NewRequest("GET", "/", nil)
		in.Header[c.header] = c.values
		r := &httputil.ProxyRequest{In: in, Out: in.Clone(t.Context())}
		(&port{box: &persistent.Sandbox{ID: "i"}, number: 1, keys: keys, access: "the sandbox's"}).rewrite(r)
		if _, kept := r.Out.Header[c.header]; kept != c.kept {
			t.Errorf("%s: %q: kept is %t", c.header, c.values, kept)
		}
	}
}
