// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caisson-run/caisson/egress/wire"
)

// What a service repeats is covered, wherever the reads end, and nothing else.
func TestRedaction(t *testing.T) {
	h := http.Header{"Authorization": {"Basic " + b64("me:"+holder)}}
	hidden, err := at(t, Secrets{secret(t, nil)}, h)
	if err != nil {
		t.Fatal(err)
	}
	written := strings.TrimPrefix(h.Get("Authorization"), "Basic ")
	stars := strings.Repeat("*", len(value))
	in := "a" + value + value + "sk-the-real-val " + written + " sk-the-real-value! sk-the-re"
	want := "a" + stars + stars + "sk-the-real-val " + strings.Repeat("*", len(written)) + " " + stars + "! sk-the-re"
	for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in)), iotest.HalfReader(strings.NewReader(in)), iotest.DataErrReader(strings.NewReader(in))} {
		got, err := io.ReadAll(hidden.Body(io.NopCloser(r), false))
		if err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	answer := http.Header{"X-Echo": {"<" + value + ">"}}
	if hidden.Header(answer); answer.Get("X-Echo") != "<"+stars+">" {
		t.Error(answer)
	}
	if hidden, _ := at(t, Secrets{secret(t, func(s *wire.Secret) { s.Value = "short" })}, http.Header{"Authorization": {holder}}); hidden == nil || len(hidden) != 0 {
		t.Error("a short secret is looked for")
	}
}

// What quotes an answer, or calls a header by a secret, shows it no more than the rest.
func TestRedactionInOtherForms(t *testing.T) {
	r := Redaction{[]byte(`pa"ss\1234567`), []byte("abcdef0123456789"), []byte("päss1234567")}
	for said, want := range map[string]string{
		`malformed HTTP response "pa\"ss\\1234567"`: `malformed HTTP response "` + strings.Repeat("*", 15) + `"`,
		`malformed "p\u00e4ss1234567"`:              `malformed "` + strings.Repeat("*", 16) + `"`,
		`bad abcdef0123456789`:                      `bad ` + strings.Repeat("*", 16),
	} {
		if got := r.Text(said); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
	h := http.Header{"X-Abcdef0123456789": {"1"}, "X-Other": {"abcdef0123456789"}, "X-Plain": {"1"}}
	r.Header(h)
	if len(h) != 2 || h.Get("X-Other") != strings.Repeat("*", 16) || h.Get("X-Plain") != "1" {
		t.Errorf("%v", h)
	}
}

// FuzzRedaction holds that covering keeps the length and leaves no secret.
func FuzzRedaction(f *testing.F) {
	f.Add("a"+value, 3)
	f.Fuzz(func(t *testing.T, s string, size int) {
		r := Redaction{[]byte(value), []byte("abababab")}
		got, err := io.ReadAll(r.Body(io.NopCloser(&parts{strings.NewReader(s), max(size%50, 1)}), size%2 == 0))
		if err != nil || len(got) != len(s) || strings.Contains(string(got), value) || strings.Contains(string(got), "abababab") {
			t.Errorf("%q became %q, %v", s, got, err)
		}
	})
}

type parts struct {
	r       io.Reader
	maximum int
}

func (p *parts) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.maximum)]) }
