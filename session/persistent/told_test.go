// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// What callers are given of an agent's word, whatever it says.
func TestToldIsBounded(t *testing.T) {
	show := func(s string) interpreter.Event {
		e := interpreter.Event{Type: interpreter.Display, Result: &interpreter.Result{}}
		if err := json.Unmarshal([]byte(s), &e.Result.Data); err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, tt := range map[string]struct {
		in   interpreter.Event
		want string // of the forms, or the text; empty is nothing
	}{
		"text":                        {show(`{"text/plain":"a"}`), `{"text/plain":"a"}`},
		"a picture":                   {show(`{"image/png":"iVBORw0KGgo="}`), `{"image/png":"iVBORw0KGgo="}`},
		"no base64":                   {show(`{"image/png":"<script>"}`), ``},
		"base64 in lines":             {show(`{"image/png":"iVBORw0K\nGgo="}`), ``},
		"a picture as JSON":           {show(`{"image/png":{"a":1},"text/plain":"b"}`), `{"text/plain":"b"}`},
		"text as JSON":                {show(`{"text/html":["x"]}`), ``},
		"a vector picture":            {show(`{"image/svg+xml":"svg"}`), `{"image/svg+xml":"svg"}`},
		"JSON":                        {show(`{"application/json":{"a":[1]}}`), `{"application/json":{"a":[1]}}`},
		"a type that splits a header": {show(`{"text/html\r\nX: y":"x"}`), ``},
		"an event of another day":     {interpreter.Event{Type: "news"}, ``},
		"a result without one":        {interpreter.Event{Type: interpreter.Display}, ``},
		"an error without one":        {interpreter.Event{Type: interpreter.Failure}, ``},
		"empty output":                {interpreter.Event{Type: interpreter.Stdout}, ``},
		"bytes that are no text":      {interpreter.Event{Type: interpreter.Stdout, Text: "a\xff"}, "a\ufffd"},
	} {
		out, err := newTold(1 << 20).event(tt.in)
		got := ""
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if out != nil && out.Result != nil {
			b, _ := json.Marshal(out.Result.Data)
			got = string(b)
		} else if out != nil {
			got = out.Text
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// A listener is given no more than may be told, and who tells more is not listened to.
func TestToldTooMuch(t *testing.T) {
	text := interpreter.Event{Type: interpreter.Stdout, Text: strings.Repeat("x", 1000)}
	many := interpreter.Event{Type: interpreter.Display, Result: &interpreter.Result{Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"x"`)}}}
	for name, tt := range map[string]struct {
		left int64
		e    interpreter.Event
		n    int
	}{
		"bytes": {10_000, text, 10}, "results": {1 << 30, many, maxResults}, "beginnings": {1 << 20, interpreter.Event{Type: interpreter.Started}, 1},
		"empty errors":  {1000 * eventSize, interpreter.Event{Type: interpreter.Failure, Error: &interpreter.Error{}}, 1000},
		"empty output":  {1000 * eventSize, interpreter.Event{Type: interpreter.Stdout}, 1000},
		"signs of life": {1000 * eventSize, interpreter.Event{Type: interpreter.Alive}, 1001},
	} {
		h, n := newTold(tt.left), 0
		for n <= tt.n {
			if _, err := h.event(tt.e); err != nil {
				break
			}
			n++
		}
		if n != tt.n {
			t.Errorf("%s: %d were taken, want %d", name, n, tt.n)
		}
	}
}

func TestToldEnding(t *testing.T) {
	e := &interpreter.Ending{Status: interpreter.Done, Cut: -5, Files: []interpreter.File{
		{Path: "/a", Size: 1, Type: "text/csv"}, {Path: "a"}, {Path: "/a/../b"}, {Path: "/\x00"}, {Path: "/n", Size: -1}, {Path: "/t", Type: "no type"},
		{Path: "/" + strings.Repeat("x", maxPath)}, {Path: "/\xff"},
	}}
	out, err := newTold(1).event(interpreter.Event{Type: interpreter.End, End: e})
	if err != nil || out.End.Cut != 0 || len(out.End.Files) != 2 || out.End.Files[0] != e.Files[0] || out.End.Files[1] != (interpreter.File{Path: "/t"}) {
		t.Errorf("%+v, %v", out.End, err)
	}
	for range interpreter.MaxFiles {
		e.Files = append(e.Files, interpreter.File{Path: "/f"})
	}
	if out := endOf(e); len(out.Files) != interpreter.MaxFiles || !out.More {
		t.Errorf("%d files, more: %t", len(out.Files), out.More)
	}
	for _, e := range []*interpreter.Ending{nil, {}, {Status: "won"}} {
		if out := endOf(e); out.Status != interpreter.Lost || out.Reason == "" {
			t.Errorf("%+v", out)
		}
	}
}

func FuzzTold(f *testing.F) {
	for _, s := range []string{
		`{"type":"started","count":1}`, `{"type":"stdout","text":"a","time":"2026-01-02T03:04:05Z"}`, `{"type":"display","result":{"main":true,"data":{"image/png":"iVBORw0KGgo="}}}`,
		`{"type":"error","error":{"name":"E","value":"v","traceback":"t"}}`, `{"type":"end","end":{"status":"ok","files":[{"path":"/a","size":1}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e interpreter.Event
		if json.Unmarshal(b, &e) != nil {
			return
		}
		out, err := newTold(1 << 16).event(e)
		if err != nil || out == nil {
			return
		}
		text, err := json.Marshal(out)
		if err != nil || !utf8.Valid(text) || len(text) > 8<<16 {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	})
}

// scripted is an agent's word on a cell: events, and then silence until it is closed.
type scripted struct {
	events []interpreter.Event
	closed chan struct{}
}

func (s *scripted) Next() (interpreter.Event, error) {
	if len(s.events) == 0 {
		<-s.closed
		return interpreter.Event{}, io.ErrUnexpectedEOF
	}
	e := s.events[0]
	s.events = s.events[1:]
	return e, nil
}

func (s *scripted) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

// An agent that says more than it may, or says no end, has its cell recorded as that.
func TestCellOfAHostileAgent(t *testing.T) {
	print := interpreter.Event{Type: interpreter.Stdout, Text: strings.Repeat("x", 1000)}
	run := func(l sandbox.Limits, on func(interpreter.Event) error, events ...interpreter.Event) (*sandbox.Result, *scripted, error) {
		ex := &scripted{events, make(chan struct{})}
		a := &action{Limits: l}
		c := &cell{action: a, on: on, told: newTold(10_000), wait: time.Millisecond}
		res, err := c.hear(context.Background(), ex)
		return res, ex, err
	}
	all := func(interpreter.Event) error { return nil }
	flood := make([]interpreter.Event, 20)
	for i := range flood {
		flood[i] = print
	}
	res, ex, err := run(sandbox.Limits{}, all, flood...)
	if err != nil || res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitOutput || len(ex.events) != 9 {
		t.Errorf("%+v, %v, %d unheard", res, err, len(ex.events))
	}
	<-ex.closed
	res, ex, err = run(sandbox.Limits{Output: 2000, OutputKill: true}, all, flood...)
	if err != nil || res.Resource != sandbox.LimitOutput || len(ex.events) != 17 {
		t.Errorf("a limit that ends: %+v, %v, %d unheard", res, err, len(ex.events))
	}
	<-ex.closed
	// One that never ends it loses its sandbox. A cell that waits for others does not cost it.
	for _, begun := range []bool{true, false} {
		killed := false
		ex = &scripted{nil, make(chan struct{})}
		c := &cell{action: &action{Limits: sandbox.Limits{Wall: time.Millisecond}}, on: all, told: newTold(1), turn: time.Millisecond, wait: time.Millisecond}
		c.told.begun, c.kill = begun, func() { killed = true }
		res, err = c.hear(context.Background(), ex)
		if err != nil || res.Status != sandbox.StatusTimeout || res.Resource != sandbox.LimitWall || killed != begun {
			t.Errorf("no end: %+v, %v, begun: %t, killed: %t", res, err, begun, killed)
		}
	}
	// A listener that fails interrupts it.
	gone := errors.New("gone")
	res, ex, err = run(sandbox.Limits{}, func(interpreter.Event) error { return gone }, print)
	if err != gone || res == nil || res.Status != sandbox.StatusError {
		t.Errorf("a listener that fails: %+v, %v", res, err)
	}
	<-ex.closed
}

// A warmup whose kernel ends raises nothing, and has failed all the same.
func TestFailureOfWarmup(t *testing.T) {
	raised := interpreter.Event{Type: interpreter.Failure, Error: &interpreter.Error{Name: "ValueError", Value: "x"}}
	for want, events := range map[string][]interpreter.Event{
		"":                         {{Type: interpreter.End, End: &interpreter.Ending{Status: interpreter.Done}}},
		"lost: exited with code 3": {{Type: interpreter.End, End: &interpreter.Ending{Status: interpreter.Lost, Reason: "exited with code 3"}}},
		"ValueError: x":            {raised, {Type: interpreter.End, End: &interpreter.Ending{Status: interpreter.Failed}}},
	} {
		err := failureOf(&scripted{events, make(chan struct{})})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
