// SPDX-License-Identifier: Apache-2.0

// Package params reads and checks the arguments of tools.
//
// They are written by a model, or by the author of what it read. The program
// that carries the call out may read JSON in another way than we do. So [Read]
// takes only text that every reader understands alike, and [Schema.Check]
// reports every fault with its path, because a model mends what it is told
// about.
//
// Nothing here does I/O; time and memory are bounded by the text and by the
// schema, and a schema whose checking could take long is refused when it is
// compiled.
package params

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
)

// Bounds of arguments.
const (
	MaxText   = 1 << 20   // bytes
	maxDepth  = 32        // of objects and lists
	maxValues = 20_000    // in all
	maxDigits = 64        // of a number as it is written
	maxKey    = 256       // bytes of a name
	maxExact  = 1<<53 - 1 // beyond it whole numbers differ between readers
)

// Read reads one JSON value. Objects are map[string]any, lists []any, numbers
// [json.Number]. It refuses what readers take differently: a name twice, names
// that are not plain ASCII or that JavaScript gives a meaning (__proto__),
// bytes that are no UTF-8, half a surrogate pair, NUL and other characters that
// cannot be seen, numbers that a float64 does not hold, and anything behind the
// value. Errors are ErrInvalid with the path.
func Read(src []byte) (any, error) { return read(src, false) }

// read is Read; in a schema numbers are bounds, which may be of 64 bits.
func read(src []byte, schema bool) (any, error) {
	if len(src) > MaxText {
		return nil, invalid("", "it is longer than %d MiB", MaxText>>20)
	}
	if !utf8.Valid(src) {
		return nil, invalid("", "it is not UTF-8 text")
	}
	if !json.Valid(src) { // before anything else: the token reader below is laxer
		return nil, &sandbox.Error{Op: "arguments", Kind: sandbox.ErrInvalid, Problem: "it is not JSON", Hint: `write one object: {"name": "value"}`}
	}
	if bytes.Contains(src, []byte(`\u`)) && halfSurrogate(src) {
		return nil, invalid("", "a character is half of a pair")
	}
	r := &reader{dec: json.NewDecoder(bytes.NewReader(src)), schema: schema}
	r.dec.UseNumber()
	v, err := r.value("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("", "something follows the value")
	}
	return v, nil
}

// invalid is a fault at path, a JSON pointer.
func invalid(path, format string, args ...any) error {
	op := "arguments"
	if path != "" {
		op += " " + path
	}
	return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...)}
}

type reader struct {
	dec    *json.Decoder
	values int
	schema bool
}

func (r *reader) value(path string, depth int) (any, error) {
	if r.values++; r.values > maxValues {
		return nil, invalid(path, "there are more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, invalid("", "it is nested deeper than %d", maxDepth)
	}
	t, err := r.dec.Token()
	if err != nil {
		return nil, invalid(path, "it is not JSON: %v", err)
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return r.object(path, depth)
		}
		return r.list(path, depth)
	case json.Number:
		return t, number(path, t.String(), r.schema)
	case string:
		return t, text(path, t)
	}
	return t, nil
}

func (r *reader) object(path string, depth int) (any, error) {
	out := map[string]any{}
	for r.dec.More() {
		t, err := r.dec.Token()
		if err != nil {
			return nil, invalid(path, "it is not JSON: %v", err)
		}
		key, _ := t.(string)
		if err := name(path, key); err != nil {
			return nil, err
		}
		at := path + "/" + escape(key)
		if _, twice := out[key]; twice {
			return nil, invalid(at, "the name is there twice")
		}
		if out[key], err = r.value(at, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := r.dec.Token()
	return out, err
}

func (r *reader) list(path string, depth int) (any, error) {
	out := []any{}
	for r.dec.More() {
		v, err := r.value(path+"/"+strconv.Itoa(len(out)), depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := r.dec.Token()
	return out, err
}

// escape is a name within a JSON pointer.
func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// name refuses names that look like others, or mean more to some readers.
func name(path, key string) error {
	if len(key) > maxKey {
		return invalid(path, "a name has more than %d bytes", maxKey)
	}
	for _, c := range []byte(key) {
		if c < ' ' || c >= 0x7f {
			return invalid(path, "the name %+q is not plain ASCII", key)
		}
	}
	if key == "__proto__" || key == "constructor" || key == "prototype" {
		return invalid(path, "the name %s means more than a name to some readers", key)
	}
	return nil
}

// number refuses numbers that readers round differently. It does not say which it was:
// the argument may be one that no record has.
func number(path, s string, schema bool) error {
	if len(s) > maxDigits {
		return invalid(path, "a number has %d characters, the most is %d", len(s), maxDigits)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) || f == 0 && strings.Trim(s, "-0.eE+") != "" && strings.ContainsAny(mantissa(s), "123456789") {
		return invalid(path, "the number is too large or too small")
	}
	if math.Abs(f) > maxExact && !schema {
		return invalid(path, "the number is too large to be exact; write it as text")
	}
	return nil
}

func mantissa(s string) string {
	m, _, _ := strings.Cut(strings.ToLower(s), "e")
	return m
}

// halfSurrogate finds \uD800 without its other half, which readers replace,
// keep or refuse. src is valid JSON.
func halfSurrogate(src []byte) bool {
	unit := func(i int) (uint64, bool) {
		if i+6 > len(src) || src[i] != '\\' || src[i+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(src[i+2:i+6]), 16, 32)
		return n, err == nil
	}
	for i := 0; i < len(src); i++ {
		if src[i] != '\\' {
			continue
		}
		n, ok := unit(i)
		switch {
		case !ok:
			i++ // \\ and its like
		case n >= 0xd800 && n < 0xdc00:
			if low, ok := unit(i + 6); !ok || low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		case n >= 0xdc00 && n < 0xe000:
			return true
		default:
			i += 5
		}
	}
	return false
}
