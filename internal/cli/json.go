// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

func (a *app) printJSON(v any) { a.writeJSON(v, "") }

// writeJSON prints one value, each level further in by indent, on one line without.
func (a *app) writeJSON(v any, indent string) {
	enc := json.NewEncoder(jsonText{a.out})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		a.out.note(err)
	}
}

// jsonText passes JSON on, a whole value with each Write, and writes as escapes what a
// terminal would obey or not show. JSON itself escapes the controls of ASCII alone:
// U+009B begins a sequence, too, and U+202E turns text round. Values stay the same.
type jsonText struct{ to io.Writer }

// Write writes p, escaped.
func (t jsonText) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p))
	for rest := p; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r < utf8.RuneSelf && r != 0x7f, r != 0x7f && unicode.IsPrint(r):
			out = append(out, rest[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[n:]
	}
	if _, err := t.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
