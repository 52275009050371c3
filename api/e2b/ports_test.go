// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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
