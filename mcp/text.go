// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"strings"
	"unicode"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// plain is text of a server's as it may be shown to people and models: without
// what [params.Unseen] says of, but for line breaks and tabs, without characters
// that each font draws otherwise, and at most most bytes long.
func plain(s string, maximum int) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case params.Unseen(r), unicode.Is(unicode.Co, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(sandbox.Clip(s, maximum), "\uFFFD"))
}

// line is plain text in one line.
func line(s string, maximum int) string {
	return strings.Join(strings.Fields(plain(s, maximum)), " ")
}

// plainValue is v, which was JSON, with plain texts; its names are left alone.
func plainValue(v any, maximum int) any {
	switch v := v.(type) {
	case string:
		return plain(v, maximum)
	case []any:
		for i := range v {
			v[i] = plainValue(v[i], maximum)
		}
	case map[string]any:
		for k := range v {
			v[k] = plainValue(v[k], maximum)
		}
	}
	return v
}

// plainNames says whether all names in v, which was JSON, can be seen. They are what
// answers are called by, and cannot be made plain.
func plainNames(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if !plainNames(e) {
				return false
			}
		}
	case map[string]any:
		for name, e := range v {
			if plain(name, len(name)) != name || strings.ContainsAny(name, "\n\t") || !plainNames(e) {
				return false
			}
		}
	}
	return true
}
