// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"fmt"
	"strings"
)

// Pattern is a name, or all names below one: "*.example.com" matches
// a.example.com and a.b.example.com, never example.com itself. The zero Pattern
// matches nothing.
type Pattern struct {
	base Name
	wild bool
}

// ParsePattern reads a name or "*." and a name of at least two labels.
func ParsePattern(s string) (Pattern, error) {
	rest, wild := strings.CutPrefix(s, "*.")
	if strings.Contains(rest, "*") {
		return Pattern{}, fmt.Errorf("a * stands for whole parts at the beginning: *.example.com")
	}
	n, err := ParseName(rest)
	if err != nil {
		return Pattern{}, err
	}
	if wild && !strings.Contains(n.s, ".") {
		return Pattern{}, fmt.Errorf("*.%s is a whole top-level domain", n)
	}
	return Pattern{base: n, wild: wild}, nil
}

// Match reports whether n is what p names.
func (p Pattern) Match(n Name) bool {
	if p.base.IsZero() || n.IsZero() {
		return false
	}
	if p.wild {
		return strings.HasSuffix(n.s, "."+p.base.s)
	}
	return n == p.base
}

// Covers reports whether p matches every name that q matches.
func (p Pattern) Covers(q Pattern) bool {
	if q.wild && !p.wild {
		return false
	}
	return p.Match(q.base) || p.wild && q.wild && p.base == q.base
}

// Base is the name itself, or the one that all of p's are below.
func (p Pattern) Base() Name { return p.base }

// IsZero reports whether p matches nothing.
func (p Pattern) IsZero() bool { return p.base.IsZero() }

// String is the pattern in its one spelling.
func (p Pattern) String() string {
	if p.wild {
		return "*." + p.base.s
	}
	return p.base.s
}
