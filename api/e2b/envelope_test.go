// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/internal/envd"
)

func envelope(flags byte, n uint32, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, n), body...)
}

func TestReadEnvelope(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want string // the value, or the error's code
	}{
		"one message":       {envelope(0, 9, `{"a":"x"}`), "x"},
		"unknown fields":    {envelope(0, 17, `{"a":"x","b":[1]}`), "x"},
		"empty":             {nil, codeInvalid},
		"half a head":       {[]byte{0, 0}, codeInvalid},
		"cut short":         {envelope(0, 10, `{"a":"x"}`), codeInvalid},
		"packed":            {envelope(1, 9, `{"a":"x"}`), codeUnimplemented},
		"an end":            {envelope(2, 2, `{}`), codeInvalid},
		"no JSON":           {envelope(0, 3, `{"a`), codeInvalid},
		"a claim of 4 GiB":  {envelope(0, 1<<32-1, `{}`), codeExhausted},
		"two messages":      {append(envelope(0, 9, `{"a":"x"}`), envelope(0, 9, `{"a":"y"}`)...), codeInvalid},
		"bytes behind it":   {append(envelope(0, 9, `{"a":"x"}`), 0), codeInvalid},
		"a list, no object": {envelope(0, 2, `[]`), codeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/", iotest.OneByteReader(bytes.NewReader(c.body)))
			var v struct{ A string }
			err := readEnvelope(httptest.NewRecorder(), r, &v)
			got := v.A
			if err != nil {
				got = asConnect(err).Code
			}
			if got != c.want {
				t.Errorf("%q (%v), want %q", got, err, c.want)
			}
		})
	}
}

// A message is refused for what it is made of before it is taken apart: it costs what
// was read of it. Without the bound one of 16 MiB was 650 MB.
func TestMessageOfTooMuch(t *testing.T) {
	many := `{"process":{"cmd":"x","args":[` + strings.Repeat(`"",`, maxMessage/3-100) + `""]}}`
	var q envd.ProcessStart
	for name, read := range map[string]func() error{
		"unary": func() error {
			return readUnary(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(many)), &q)
		},
		"a stream": func() error {
			body := io.MultiReader(bytes.NewReader(envelope(0, uint32(len(many)), "")), strings.NewReader(many))
			return readEnvelope(httptest.NewRecorder(), httptest.NewRequest("POST", "/", body), &q)
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		if err == nil || asConnect(err).Code != codeExhausted || !strings.Contains(err.Error(), "more than 20000 values") {
			t.Errorf("%s: %v", name, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 32 {
			t.Errorf("%s: it took %d MiB", name, took)
		}
	}
	var c createBody
	err := readBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(`{"metadata":`+strings.Repeat("[", api.MaxValues))), &c, false)
	if e := asAPI(err); e.Code != 413 || !strings.Contains(e.Message, "more than 20000 values") {
		t.Errorf("the control plane: %v", err)
	}
	// What is long and made of little is taken.
	long := `{"process":{"cmd":"` + strings.Repeat("[", maxMessage-100) + `"}}`
	if err := readUnary(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(long)), &q); err != nil || len(q.Process.Cmd) != maxMessage-100 {
		t.Error(err)
	}
}

// Memory grows with what arrives.
func FuzzEnvelope(f *testing.F) {
	f.Add(envelope(0, 2, "{}"))
	f.Add(envelope(0, 1<<24, "{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := cutEnvelope(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.Equal(got, b[5:5+len(got)]) || uint32(len(got)) != binary.BigEndian.Uint32(b[1:]) {
			t.Fatalf("%q of %q", got, b)
		}
		if cap(got) > 2*len(b)+1024 {
			t.Fatalf("%d bytes were kept for %d", cap(got), len(b))
		}
	})
}

// events reads a stream as a client does.
func events(t *testing.T, r io.Reader) (all []string) {
	t.Helper()
	for {
		var h [5]byte
		if _, err := io.ReadFull(r, h[:]); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint32(h[1:]))
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(b) {
			t.Errorf("%q is no JSON", b)
		}
		all = append(all, string('0'+rune(h[0]))+string(b))
	}
}

func TestStream(t *testing.T) {
	w := httptest.NewRecorder()
	s := newStream(w)
	s.event(started(7))
	s.data("stdout", []byte{0, 0xff, '"', '\n'})
	s.end(nil)
	s.detach()
	s.data("stdout", []byte("nobody hears this"))
	want := `0{"event":{"start":{"pid":7}}} 0{"event":{"data":{"stdout":"` + base64.StdEncoding.EncodeToString([]byte{0, 0xff, '"', '\n'}) + `"}}} 2{}`
	if got := strings.Join(events(t, w.Body), " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if !w.Flushed || w.Header().Get("Content-Type") != "application/connect+json" {
		t.Error("it is not flushed, or of another type")
	}
}

func TestStreamEndsWithError(t *testing.T) {
	w := httptest.NewRecorder()
	newStream(w).end(errLate)
	if got, want := strings.Join(events(t, w.Body), " "), `2{"error":{"code":"deadline_exceeded","message":"the call took longer than its timeout"}}`; got != want {
		t.Error(got)
	}
}

// flushing tells of the first flush of an answer.
type flushing struct {
	*httptest.ResponseRecorder
	once    sync.Once
	flushed chan struct{}
}

func (f *flushing) Flush() {
	f.ResponseRecorder.Flush()
	f.once.Do(func() { close(f.flushed) })
}

func TestKeepalive(t *testing.T) {
	w := &flushing{ResponseRecorder: httptest.NewRecorder(), flushed: make(chan struct{})}
	stop := newStream(w).keepAlive(time.Millisecond, processAlive)
	<-w.flushed
	stop()
	if got := events(t, w.Body)[0]; got != `0{"event":{"keepalive":{}}}` {
		t.Error(got)
	}
}

func TestCallTimeout(t *testing.T) {
	for s, want := range map[string]time.Duration{"": 0, "0": 0, "1500": 1500 * time.Millisecond, "9999999999": 9999999999 * time.Millisecond,
		"-1": -1, "1.5": -1, "10000000000": -1, "x": -1, "00000000001": -1} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Connect-Timeout-Ms", s)
		d, err := callTimeout(r)
		if err != nil {
			d = -1
		}
		if d != want {
			t.Errorf("%q is %v", s, d)
		}
	}
}

// The last event goes out with the end: each piece wakes the client.
func TestLastGoesOutWithTheEnd(t *testing.T) {
	w := &flushes{ResponseRecorder: httptest.NewRecorder()}
	s := newStream(w)
	s.event("first")
	s.final("last")
	s.end(nil)
	if w.n != 2 {
		t.Errorf("%d pieces", w.n)
	}
	if got := w.Body.String(); strings.Count(got, `"event"`) != 2 || !strings.HasSuffix(got, "{}") {
		t.Errorf("%q", got)
	}
}

type flushes struct {
	*httptest.ResponseRecorder
	n int
}

func (f *flushes) Flush() { f.n++ }
