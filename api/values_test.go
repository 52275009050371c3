// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// What a body is made of is bounded, not how long it is; a text counts as one.
func TestJSON(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"as much as may be":                  {list(MaxValues), true},
		"one more":                           {list(MaxValues + 1), false},
		"objects":                            {strings.Repeat("{", MaxValues+1), false},
		"a long text":                        {`{"a":"` + strings.Repeat(`,[{`, MaxValues) + `"}`, true},
		"a text with a quote in it":          {`{"a":"` + strings.Repeat(`\",[`, MaxValues) + `"}`, true},
		"a text that ends with a backslash":  {`{"a":"\\"` + strings.Repeat(",", MaxValues) + `}`, false},
		"many lines":                         {strings.Repeat("[\n", MaxValues+1), false},
		"more than one value, side by side":  {strings.Repeat("{}", MaxValues+1), false},
		"a text that a line does not end":    {"\"\n" + strings.Repeat(",", MaxValues+1), true},
		"a backslash that is in no text":     {`\"` + strings.Repeat(",", MaxValues+1), true},
		"nothing":                            {"", true},
		"a value that is not yet at its end": {`{"a":[`, true},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text))} {
			body := LimitJSON(io.NopCloser(r))
			b, err := io.ReadAll(body)
			var many *TooMany
			if c.ok && (err != nil || string(b) != c.text) || !c.ok && !errors.As(err, &many) {
				t.Errorf("%s: %d bytes, %v", name, len(b), err)
			}
			if _, err := body.Read(make([]byte, 1)); !c.ok && !errors.As(err, &many) {
				t.Errorf("%s: it goes on: %v", name, err)
			}
		}
	}
}

// However JSON is written and comes, no fewer values are counted than a reader
// finds, and no more than it has tokens.
func FuzzValues(f *testing.F) {
	for _, s := range []string{`{}`, `[[],[],{"a":{}}]`, `{"a":"\\","b":["\",[{"]}`, `[1, 2.5e3 ,null,true]`, `"x"`, ` [ ] `, `{"a`, `{"a":1,"a":2}`} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		var whole, inPieces Values
		whole.Take(b, len(b))
		at = min(max(at, 0), len(b))
		inPieces.Take(b[:at], len(b))
		inPieces.Take(b[at:], len(b))
		if whole != inPieces {
			t.Fatalf("%+v, cut at %d %+v", whole, at, inPieces)
		}
		if whole.n > 0 && new(Values).Take(b, whole.n-1) || !new(Values).Take(b, whole.n) {
			t.Fatalf("the bound is not at %d", whole.n)
		}
		if !json.Valid(b) {
			return
		}
		if values, tokens := parts(t, b); whole.n < values-1 || whole.n > tokens {
			t.Fatalf("%d are counted of %d, of %d tokens", whole.n, values, tokens)
		}
	})
}

// parts are how many values and tokens valid JSON is made of.
func parts(t *testing.T, b []byte) (values, tokens int) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	type open struct{ object, name bool } // name says that the next token is one
	var in []open
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return values, tokens
		}
		if err != nil {
			t.Fatal(err)
		}
		tokens++
		delim, _ := token.(json.Delim)
		if delim == ']' || delim == '}' {
			in = in[:len(in)-1]
			continue
		}
		if last := len(in) - 1; last >= 0 && in[last].object {
			if in[last].name = !in[last].name; !in[last].name {
				continue
			}
		}
		values++
		if delim != 0 {
			in = append(in, open{delim == '{', delim == '{'})
		}
	}
}
