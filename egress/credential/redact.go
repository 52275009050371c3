// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// leastHidden is how long a secret must be to be looked for in answers, in
// bytes: a shorter one is in them by chance.
const leastHidden = 8

// Redaction is what must not be seen in the answer to a request that a secret
// was put into. It is for services that repeat what they were sent, in an error
// message for example. It does not hold back a service that gives the secret
// away in another form.
type Redaction [][]byte

// add adds a secret, and how it was written.
func (r Redaction) add(s *Secret, written string) Redaction {
	if len(s.value) < leastHidden {
		return r
	}
	r = append(r, []byte(s.value))
	if _, b64, ok := strings.Cut(written, " "); ok && basic(written) != "" {
		r = append(r, []byte(b64))
	}
	return r
}

// stars covers what must not be seen. It keeps the length, which may have been
// announced.
func (r Redaction) stars(b []byte) {
	for _, secret := range r {
		for i := 0; ; {
			at := bytes.Index(b[i:], secret)
			if at < 0 {
				break
			}
			i += at
			for range secret {
				b[i] = '*'
				i++
			}
		}
	}
}

// Text covers it in what is said of an answer, also where that quotes it.
func (r Redaction) Text(s string) string {
	for _, secret := range r {
		for _, quote := range []func(string) string{strconv.Quote, strconv.QuoteToASCII} {
			if q := quote(string(secret)); q != `"`+string(secret)+`"` {
				s = strings.ReplaceAll(s, q[1:len(q)-1], strings.Repeat("*", len(secret)))
			}
		}
	}
	b := []byte(s)
	r.stars(b)
	return string(b)
}

// names reports whether a header is called by a secret, whose letters a name may have
// changed the case of.
func (r Redaction) names(key string) bool {
	return slices.ContainsFunc(r, func(secret []byte) bool {
		return strings.Contains(strings.ToLower(key), strings.ToLower(string(secret)))
	})
}

// Header covers it in an answer's headers, or in what comes after its body. One that is
// called by it is left out.
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

// Body covers it in an answer's body, which must not be compressed. Bytes are
// held back only as long as they may be the beginning of a secret.
func (r Redaction) Body(body io.ReadCloser) io.ReadCloser {
	return &redacted{r: r, body: body}
}

type redacted struct {
	r    Redaction
	body io.ReadCloser
	read []byte // what was read; ready of it can be given out
	ok   int
	err  error
	buf  []byte
}

func (d *redacted) Close() error { return d.body.Close() }

// readSize is how much is read at once, in bytes.
const readSize = 16 << 10

func (d *redacted) Read(p []byte) (int, error) {
	for d.ok == 0 {
		if d.err != nil {
			return 0, d.err
		}
		if d.buf == nil {
			d.buf = make([]byte, readSize)
		}
		n, err := d.body.Read(d.buf)
		d.read, d.err = append(d.read, d.buf[:n]...), err
		d.r.stars(d.read)
		d.ok = len(d.read)
		if err == nil {
			d.ok -= d.r.begun(d.read)
		}
	}
	n := copy(p, d.read[:d.ok])
	d.read = append(d.read[:0], d.read[n:]...)
	d.ok -= n
	return n, nil
}

// begun is how many bytes at the end of b may be the beginning of a secret.
func (r Redaction) begun(b []byte) int {
	longest := 0
	for _, secret := range r {
		for n := min(len(secret)-1, len(b)); n > longest; n-- {
			if bytes.HasPrefix(secret, b[len(b)-n:]) {
				longest = n
			}
		}
	}
	return longest
}
