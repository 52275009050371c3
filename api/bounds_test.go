// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
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

// What goes to a client goes within a time; between that there is none.
func TestPatient(t *testing.T) {
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	p := NewTransferWriter(w)
	p.Write([]byte("x"))
	if !w.at.IsZero() {
		t.Error("a deadline stays behind a write")
	}
	http.NewResponseController(p).Flush()
	if !w.at.IsZero() || len(w.seen) != 2 || !w.seen[0] || !w.seen[1] {
		t.Errorf("deadlines: %v, %v behind them", w.seen, w.at)
	}
}

// What a key's calls hold is bounded together, is given back, and is no other key's
// business.
func TestMemory(t *testing.T) {
	var m Memory
	hold := func(k string) *Held {
		h, err := m.Hold(k)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	one, two, other := hold("k"), hold("k"), hold("l")
	if err := one.Add(MaxMessages); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, two.Body(io.NopCloser(strings.NewReader("x")))); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("more than there is room for: %v", err)
	}
	if err := other.Add(1); err != nil {
		t.Error(err)
	}
	one.Done()
	if err := two.Add(MaxMessages); err != nil {
		t.Error("what was held is not given back:", err)
	}
	two.Done()
	other.Done()
	if len(m.used)+len(m.calls) != 0 {
		t.Error(m.used, m.calls)
	}
}

// So many calls of a key are under way and no more; visitors have places of their
// own, and so has every other key. A place is given back once.
func TestCalls(t *testing.T) {
	var m Memory
	var all []*Held
	for _, c := range []struct {
		enter   func(string) (*Held, error)
		maximum int
	}{{m.Hold, MaxCalls}, {m.Visit, MaxVisits}} {
		for range c.maximum {
			h, err := c.enter("k")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, h)
		}
		if _, err := c.enter("k"); !errors.Is(err, sandbox.ErrExhausted) {
			t.Errorf("one more than %d: %v", c.maximum, err)
		}
		h, err := c.enter("l")
		if err != nil {
			t.Fatal("another key's:", err)
		}
		all = append(all, h)
	}
	for _, h := range all {
		h.Done()
		h.Done()
	}
	if len(m.calls) != 0 {
		t.Error(m.calls)
	}
}

// late is a request's deadline.
type late struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (l *late) SetReadDeadline(at time.Time) error { l.at = at; return nil }

// A body has a time to arrive in, and its call none from then on.
func TestMessage(t *testing.T) {
	w := &late{ResponseRecorder: httptest.NewRecorder()}
	m := &Message{ReadCloser: io.NopCloser(strings.NewReader("xy")), Control: http.NewResponseController(w), Timeout: time.Hour}
	if m.Read(make([]byte, 1)); w.at.IsZero() {
		t.Error("it may take for ever")
	}
	if io.ReadAll(m); !w.at.IsZero() {
		t.Error("the deadline stays")
	}
}

// What is served for a key is one of its calls, its body counts and has a time to
// arrive in, and so has who reads the answer.
func TestServe(t *testing.T) {
	var m Memory
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	in := &late{ResponseRecorder: httptest.NewRecorder()}
	both := struct {
		*timed
		readDeadline
	}{w, in}
	r := httptest.NewRequest("POST", "/", strings.NewReader("xyz"))
	m.Serve("k", both, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body.Read(make([]byte, 2))
		if m.calls["k"] != 1 || m.used["k"] != 2 || in.at.IsZero() {
			t.Errorf("%v calls, %v bytes, until %v", m.calls, m.used, in.at)
		}
		io.WriteString(w, "yes")
	}))
	if len(m.calls)+len(m.used) != 0 || len(w.seen) != 1 || !w.seen[0] {
		t.Errorf("%v %v %v", m.calls, m.used, w.seen)
	}
	for range MaxCalls {
		if _, err := m.Hold("k"); err != nil {
			t.Fatal(err)
		}
	}
	w.ResponseRecorder = httptest.NewRecorder()
	m.Serve("k", both, r, nil)
	if w.Code != http.StatusTooManyRequests {
		t.Error(w.Code)
	}
}

type readDeadline interface{ SetReadDeadline(time.Time) error }
