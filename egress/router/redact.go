// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// minHidden is how long a secret must be to be looked for in answers, in bytes:
// a shorter one is in them by chance.
const minHidden = 8

// Redaction is what must not be seen in the answer to a request that a secret
// was put into: the secret, and each form in which it was sent. It covers what a
// service repeats, in an error message for example. It does not hold back a
// service that gives the secret away in another form.
//
// An answer that does not hold a whole secret passes in the same way whatever
// the secret is: the same bytes, at the same time. Else code could have a service
// repeat guesses, and would learn a secret part by part.
//
// nil means that no secret was put in. One without elements means that the secret
// is too short to be looked for.
type Redaction [][]byte

// add adds a secret, and how it was written.
func (r Redaction) add(value, written string) Redaction {
	if r == nil {
		r = Redaction{}
	}
	if len(value) < minHidden {
		return r
	}
	r = append(r, []byte(value))
	if _, b64, ok := strings.Cut(written, " "); ok && basic(written) != "" {
		r = append(r, []byte(b64))
	}
	return r
}

// Text covers the secrets in what is said of an answer, also where that quotes
// them. The length stays.
func (r Redaction) Text(s string) string {
	texts := r
	for _, secret := range r {
		for _, quote := range []func(string) string{strconv.Quote, strconv.QuoteToASCII} {
			if q := quote(string(secret)); q != `"`+string(secret)+`"` {
				texts = append(texts[:len(texts):len(texts)], []byte(q[1:len(q)-1]))
			}
		}
	}
	b := []byte(s)
	newSearch(texts).cover(b, len(b))
	return string(b)
}

// names reports whether a header's name holds a secret. Names may have changed
// the case of its letters.
func (r Redaction) names(key string) bool {
	var lower Redaction
	for _, secret := range r {
		lower = append(lower, bytes.ToLower(secret))
	}
	b := []byte(strings.ToLower(key))
	return newSearch(lower).cover(b, len(b))
}

// Header covers the secrets in an answer's headers, or in its trailers. A header
// whose name holds one is left out.
func (r Redaction) Header(h http.Header) {
	for key, values := range h {
		if r.names(key) {
			delete(h, key)
			continue
		}
		for i, v := range values {
			values[i] = r.Text(v)
		}
	}
}
