// SPDX-License-Identifier: Apache-2.0

package params

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A regular expression takes time in proportion to its program and to the text,
// and its program is as long as its repetitions say, not as its text: 20 KB of
// "x{1000}" are 3 million steps for each character. So the program's size is
// counted before anything is compiled, and what all matches of one check take
// together is bounded.

const (
	maxPattern  = 4 << 10  // bytes of one as it is written
	maxProgram  = 5_000    // steps of one program
	maxPrograms = 40_000   // of all in a schema; each is read twice
	maxSteps    = 50 << 20 // of one check, some 40 ns each at worst
)

// patterns are the regular expressions of one schema.
type patterns struct {
	size int  // of all programs
	done bool // all of the schema's are compiled

	mu   sync.Mutex // held by a check
	left int        // steps that it may still take
}

// errSteps ends a check, by panic: whatever a match said then, true or false, would
// allow something in some schema.
var errSteps = errors.New("checking it against the schema's patterns takes too long; make it shorter")

func (p *patterns) spend(steps int) {
	if p.left -= steps; p.left < 0 {
		panic(errSteps)
	}
}

// engine reads a pattern: one of the schema's, or a text that is to be one (format:
// regex), which is not executed.
func (p *patterns) engine(s string) (jsonschema.Regexp, error) {
	if p.done {
		p.spend(64 * len(s))
	}
	if len(s) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes, the most is %d", len(s), maxPattern)
	}
	parsed, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := program(parsed, maxProgram)
	if size > maxProgram {
		return nil, fmt.Errorf("it takes more than %d steps for each character", maxProgram)
	}
	if p.done {
		return &pattern{size: size, of: p}, nil
	}
	if p.size += size; p.size > maxPrograms {
		return nil, errors.New("all patterns of the schema together take too many steps for each character")
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, err
	}
	return &pattern{re, size, p}, nil
}

// program is about how many instructions re becomes, most + 1 at most.
func program(re *syntax.Regexp, maximum int) int {
	n := 1 + len(re.Rune)/16
	if re.Op == syntax.OpLiteral {
		n = 1 + len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n += program(sub, maximum); n > maximum {
			return maximum + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		n = min(n, maximum+1) * max(re.Min+1, re.Max)
	}
	return min(n, maximum+1)
}

// pattern is one that was found small enough.
type pattern struct {
	re   *regexp.Regexp
	size int
	of   *patterns
}

func (r *pattern) MatchString(s string) bool {
	r.of.spend((len(s) + 16) * r.size)
	return r.re.MatchString(s)
}

func (r *pattern) String() string { return r.re.String() }
