// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/session"
)

// timed is an answer that looks at its deadline.
type timed struct {
	*httptest.ResponseRecorder
	at   time.Time
	seen []bool
}

func (t *timed) SetWriteDeadline(at time.Time) error { t.at = at; return nil }
func (t *timed) Write(b []byte) (int, error) {
	t.seen = append(t.seen, !t.at.IsZero())
	return t.ResponseRecorder.Write(b)
}
func (t *timed) Flush() { t.seen = append(t.seen, !t.at.IsZero()) }

// What goes to a client of a port goes within a time; between that there is none.
func TestPortWriter(t *testing.T) {
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	p := portWriter{w, http.NewResponseController(w)}
	p.Write([]byte("x"))
	if !w.at.IsZero() {
		t.Error("a deadline stays behind a write")
	}
	http.NewResponseController(p).Flush()
	if !w.at.IsZero() || len(w.seen) != 2 || !w.seen[0] || !w.seen[1] {
		t.Errorf("deadlines: %v, %v behind them", w.seen, w.at)
	}
}

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
