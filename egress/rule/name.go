// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Name is a host name in its one spelling: ASCII, lower case, labels of
// letters, digits, hyphens and underscores, no dot at the end, and no other
// way to write an address. The zero Name is none.
//
// Every allow-list that compared names as it found them was walked around:
// with an upper-case letter, a trailing dot, a NUL byte, an address written as
// one number. [ParseName] makes the one spelling where a name comes in. Other code
// compares Names alone.
type Name struct{ s string }

// String is the name, empty for the zero Name.
func (n Name) String() string { return n.s }

// Absolute is the name with the dot at its end that keeps resolvers from
// trying search domains.
func (n Name) Absolute() string { return n.s + "." }

// IsZero reports whether n is no name.
func (n Name) IsZero() bool { return n.s == "" }

// What a name and a label may measure (RFC 1035, 2.3.4): 255 bytes on the
// wire are 253 characters of text.
const (
	maxName  = 253
	maxLabel = 63
)

// profile maps what people type (upper case, full-width letters) and refuses
// what UTS 46 has no valid form for. Punycode is decoded and checked.
var profile = idna.New(
	idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(true), idna.CheckJoiners(true),
	idna.StrictDomainName(true), idna.Transitional(false), idna.ValidateLabels(true), idna.VerifyDNSLength(true),
)

// ParseName normalises s. One dot at the end is taken away; everything that is odd
// is an error: an empty label, a control character, a NUL byte, white space, an
// address in any spelling.
func ParseName(s string) (Name, error) {
	if len(s) > 4*maxName { // before anything that takes time
		return Name{}, fmt.Errorf("a host name has at most %d characters", maxName)
	}
	for i := range len(s) {
		if c := s[i]; c < 0x80 && !ascii(c) {
			return Name{}, fmt.Errorf("%q cannot be in a host name", c)
		}
	}
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return Name{}, fmt.Errorf("the host name is empty")
	}
	s = strings.ToLower(s)
	if !foreign(s) {
		return check(s)
	}
	if !utf8.ValidString(s) {
		return Name{}, fmt.Errorf("the host name is not UTF-8")
	}
	a, err := profile.ToASCII(s)
	if err != nil {
		return Name{}, fmt.Errorf("no valid host name: %w", err)
	}
	// What a mapping makes of odd input it may not take itself; one spelling
	// means that it does.
	if again, err := profile.ToASCII(a); err != nil || again != a {
		return Name{}, fmt.Errorf("no valid host name: %q does not stay what it is", a)
	}
	return check(a)
}

// foreign says whether s has letters beyond ASCII, as such or in punycode.
func foreign(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return true
		}
	}
	return strings.HasPrefix(s, "xn--") || strings.Contains(s, ".xn--")
}

// Spells reports whether s is this name as it is written, in ASCII or in Unicode, but for
// the case of letters. It is false where a mapping made n of another text: full-width
// letters, other dots.
func (n Name) Spells(s string) bool {
	s = strings.ToLower(s)
	if s == n.s {
		return true
	}
	u, err := profile.ToUnicode(n.s)
	return err == nil && s == u
}

// check holds for the result what is promised of a Name, whatever the mapping
// before it made of the input.
func check(a string) (Name, error) {
	if len(a) > maxName {
		return Name{}, fmt.Errorf("a host name has at most %d characters", maxName)
	}
	labels := strings.Split(a, ".")
	for _, l := range labels {
		switch {
		case l == "":
			return Name{}, fmt.Errorf("the host name has an empty part")
		case len(l) > maxLabel:
			return Name{}, fmt.Errorf("a part of a host name has at most %d characters", maxLabel)
		case l[0] == '-' || l[len(l)-1] == '-':
			return Name{}, fmt.Errorf("a part of a host name does not begin or end with a hyphen")
		}
		for i := range len(l) {
			if c := l[i]; !ascii(c) || c == '.' || 'A' <= c && c <= 'Z' {
				return Name{}, fmt.Errorf("%q cannot be in a host name", c)
			}
		}
	}
	if number(labels[len(labels)-1]) {
		return Name{}, fmt.Errorf("that is a number or an address, not a host name")
	}
	return Name{a}, nil
}

func ascii(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// number says whether a last label makes resolvers read the whole as an IPv4
// address: 127.0.0.1, 2130706433, 0x7f.1 (https://url.spec.whatwg.org, "ends in
// a number"). No top-level domain looks like that.
func number(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	hex, ok := strings.CutPrefix(label, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}
