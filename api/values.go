// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"io"
)

// MaxValues is how many values the JSON of one request is made of at most: as many
// as a tool's arguments may have, and more than any other call has a use for.
const MaxValues = 20_000

// Values counts what JSON is made of, as it is read. Each value costs its reader some
// hundred bytes, however small it is, and one that does not fit as much again for
// the fault that says so: without a bound 4 MiB of [] were 500 MB here.
//
// It counts the characters that begin a value, all but the outermost: never fewer
// than there are, and one that is empty twice. The zero value is ready.
type Values struct {
	n               int
	inText, escaped bool
}

// Take counts what p adds; false is that there are more than most.
func (v *Values) Take(p []byte, maximum int) bool {
	for _, c := range p {
		switch {
		case v.escaped:
			v.escaped = false
		case v.inText && c == '\\':
			v.escaped = true
		case c == '"':
			v.inText = !v.inText
		case !v.inText && (c == ',' || c == '[' || c == '{'):
			if v.n++; v.n > maximum {
				return false
			}
		}
	}
	return true
}

// TooMany is why a body is not read to its end.
type TooMany struct{ Max int }

// Error says so of a request.
func (e *TooMany) Error() string {
	return fmt.Sprintf("the request is made of more than %d values", e.Max)
}

// LimitJSON is a request's body that is made of MaxValues at most. Reading more is a
// [*TooMany], before the body is read for what it says.
func LimitJSON(body io.ReadCloser) io.ReadCloser { return &limitedJSON{ReadCloser: body} }

type limitedJSON struct {
	io.ReadCloser
	values Values
	err    error
}

// Read implements io.Reader.
func (l *limitedJSON) Read(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	n, err := l.ReadCloser.Read(p)
	if !l.values.Take(p[:n], MaxValues) {
		l.err = &TooMany{MaxValues}
		return 0, l.err
	}
	return n, err
}
