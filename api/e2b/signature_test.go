// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	knownToken     = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"
	knownSignature = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
)

// The vector is E2B's own.
func TestSignature(t *testing.T) {
	known := url.Values{"path": {"hello.txt"}, "username": {"user"}, "signature": {knownSignature}}
	with := func(k, v string) url.Values {
		q := url.Values{}
		for name := range known {
			q.Set(name, known.Get(name))
		}
		q.Set(k, v)
		return q
	}
	for name, c := range map[string]struct {
		method, token string
		query         url.Values
		want          bool
	}{
		"the known one":       {http.MethodGet, knownToken, known, true},
		"HEAD reads, too":     {http.MethodHead, knownToken, known, true},
		"to write":            {http.MethodPost, knownToken, known, false},
		"another path":        {http.MethodGet, knownToken, with("path", "hello.txt2"), false},
		"another user":        {http.MethodGet, knownToken, with("username", "root"), false},
		"a time":              {http.MethodGet, knownToken, with("signature_expiration", "9999999999"), false},
		"another token":       {http.MethodGet, "x" + knownToken[1:], known, false},
		"no token":            {http.MethodGet, "", known, false},
		"padded":              {http.MethodGet, knownToken, with("signature", knownSignature+"="), false},
		"cut short":           {http.MethodGet, knownToken, with("signature", knownSignature[:len(knownSignature)-1]), false},
		"the parts shifted":   {http.MethodGet, knownToken, url.Values{"path": {"hello.txt:read:user"}, "signature": {knownSignature}}, false},
		"a path of megabytes": {http.MethodGet, knownToken, with("path", strings.Repeat("x", maxSignedPath+1)), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, ok := signedURL(c.method, c.query)
			if got := ok && s.by(c.token); got != c.want {
				t.Errorf("%t, want %t", got, c.want)
			}
		})
	}
}

func TestSignatureExpires(t *testing.T) {
	now := time.Unix(1000, 0)
	for at, want := range map[string]bool{"": true, "1000": true, "1001": true, "999": false, "-1": false, "soon": false, "1e9": false, "99999999999999999999": false} {
		if err := (signed{expiration: at}).expired(now); (err == nil) != want {
			t.Errorf("%q: %v", at, err)
		}
	}
}

// One signature fits one path, user and operation: what it covers is joined by
// colons, and no other parts may give the same text.
func FuzzSignature(f *testing.F) {
	f.Add("a", "", "", "a:read:b", "", "")
	f.Add("x:read:y", "", "", "x", "y:read:", "")
	f.Add("p", "u", "12", "p", "u", "1")
	f.Fuzz(func(t *testing.T, path, user, exp, path2, user2, exp2 string) {
		const token = knownToken
		s := signed{path: path, operation: "read", user: user, expiration: exp}
		s.signature = sign(s, token)
		if strings.Contains(path+path2+user+user2+exp+exp2, token) {
			t.Skip("not an input of this test: it has the token, and signs what it wants")
		}
		ours := s.by(token)
		for _, op := range []string{"read", "write"} {
			o := signed{path: path2, operation: op, user: user2, expiration: exp2, signature: s.signature}
			same := op == "read" && path == path2 && user == user2 && exp == exp2
			if o.by(token) && !(same && ours) {
				t.Fatalf("the signature of %+v is one of %+v", s, o)
			}
		}
	})
}
