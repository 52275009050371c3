// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
)

// maxPath bounds the path of a request that is compared with patterns, in
// bytes as it was sent.
const maxPath = 8 << 10

// Segments decodes the path of a request, as it is on the wire (RFC 3986, 3.3),
// once, and splits it at its slashes. A path that two readers could take for two
// different ones is an error: dots that lead upwards, empty segments, a slash or
// backslash in disguise, what is encoded twice. A slash at the end is an empty
// last segment.
func Segments(raw string) ([]string, error) {
	if len(raw) > maxPath {
		return nil, fmt.Errorf("the path has more than %d bytes", maxPath)
	}
	rest, ok := strings.CutPrefix(raw, "/")
	if !ok {
		return nil, errors.New("the path does not begin with a slash")
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		plain, err := decode(s)
		if err != nil {
			return nil, err
		}
		// Some servers take ;parameters off before they look for dots, and blanks, and take
		// for dots what looks like one.
		base := plain
		if i := strings.IndexAny(base, ";#?"); i >= 0 {
			base = base[:i]
		}
		base = dots.Replace(base)
		switch {
		case base == "." || base == "..":
			return nil, errors.New("the path has dots that lead elsewhere")
		case plain == "" && i < len(segments)-1:
			return nil, errors.New("the path has an empty part")
		}
		segments[i] = plain
	}
	return segments, nil
}

var dots = strings.NewReplacer(" ", "", "\u00a0", "", "\uff0e", ".", "\u2024", ".")

// decode takes percent encoding away (RFC 3986, 2.1), once.
func decode(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c <= ' ' || c >= 0x7f || c == '\\' || c == '#' || c == '?':
			return "", fmt.Errorf("the path has %q, which is to be encoded", c)
		case c == '%':
			if !encoded(s[i:]) {
				return "", errors.New("the path has a broken percent encoding")
			}
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
			if c < ' ' || c == 0x7f || c == '/' || c == '\\' {
				return "", fmt.Errorf("the path has an encoded %q", c)
			}
		}
		b.WriteByte(c)
	}
	plain := b.String()
	for i := range len(plain) {
		if encoded(plain[i:]) {
			return "", errors.New("the path is encoded twice")
		}
	}
	if !utf8.ValidString(plain) {
		return "", errors.New("the path is not UTF-8")
	}
	return plain, nil
}

// encoded reports whether s begins with a percent sign and two hex digits.
func encoded(s string) bool {
	return len(s) > 2 && s[0] == '%' && unhex(s[1]) < 16 && unhex(s[2]) < 16
}

// unhex is the value of a digit, 255 when it is none.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// PathPattern is a pattern on the decoded paths of requests. Between slashes *
// stands for any run of characters, at least one where it is alone; ** between
// slashes for any number of segments, none included. The zero PathPattern
// matches nothing.
type PathPattern struct {
	text  string
	parts []string
}

// maxPattern bounds a pattern, in bytes.
const maxPattern = 512

// ParsePath reads a pattern such as /repos/** or /v1/*/messages.
func ParsePath(s string) (PathPattern, error) {
	fail := func(format string, args ...any) (PathPattern, error) {
		return PathPattern{}, fmt.Errorf(format, args...)
	}
	switch {
	case len(s) > maxPattern:
		return fail("a path has at most %d characters", maxPattern)
	case !strings.HasPrefix(s, "/"):
		return fail("%q does not begin with a slash", s)
	case !utf8.ValidString(s):
		return fail("%q is not UTF-8", s)
	case strings.ContainsAny(s, "%?#\\[]{}"):
		return fail("%q: write the path itself, without encoding, query and sets", s)
	}
	parts := strings.Split(s[1:], "/")
	for i, p := range parts {
		switch {
		case p == "" && i < len(parts)-1:
			return fail("%q has an empty part", s)
		case p == "." || p == "..":
			return fail("%q has dots that lead elsewhere", s)
		case p != "**" && strings.Contains(p, "**"):
			return fail("%q: write ** between slashes, or a single *", s)
		}
		for _, c := range []byte(p) {
			if c < ' ' || c == 0x7f {
				return fail("%q has a control character", s)
			}
		}
	}
	return PathPattern{text: s, parts: parts}, nil
}

// String is the pattern as it was written.
func (p PathPattern) String() string { return p.text }

// Match reports whether the pattern has the path of these segments.
func (p PathPattern) Match(segments []string) bool {
	return p.text != "" && matchSegments(p.parts, segments)
}

func matchSegment(pattern, s string) bool {
	return sandbox.Matches(pattern, s) && (pattern != "*" || s != "")
}

// matchSegments matches segments against parts, in which ** stands for any run. It goes back
// to the last run alone, which is enough, so that the number of comparisons is at most the
// product of the lengths.
func matchSegments(parts, segments []string) bool {
	p, h := 0, 0
	run, from := -1, 0 // the last run, and where what it stands for ends
	for h < len(segments) {
		switch {
		case p < len(parts) && parts[p] == "**":
			run, from = p, h
			p++
		case p < len(parts) && matchSegment(parts[p], segments[h]):
			p++
			h++
		case run >= 0:
			from++
			p, h = run+1, from
		default:
			return false
		}
	}
	for p < len(parts) && parts[p] == "**" {
		p++
	}
	return p == len(parts)
}
