// SPDX-License-Identifier: Apache-2.0

package template

import (
	"bytes"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/caisson-run/caisson/sandbox"
)

// maxPatterns bounds a .dockerignore: each file of the build is compared with all of them.
const maxPatterns = 1000

// Ignore is what of the build's directory no COPY sees: the patterns of a .dockerignore. The
// zero value hides nothing. It is for one goroutine.
type Ignore struct {
	patterns *patternmatcher.PatternMatcher
}

// ParseIgnore reads a .dockerignore as docker build does. Errors are *sandbox.Error of kind
// ErrInvalid.
func ParseIgnore(name string, src []byte) (Ignore, error) {
	if line, problem, hint := checkText(src); line > 0 {
		return Ignore{}, fault(sandbox.ErrInvalid, name, line, hint, "%s", problem)
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(src))
	if err != nil {
		return Ignore{}, fault(sandbox.ErrInvalid, name, 1, "", "%v", err)
	}
	if len(patterns) > maxPatterns {
		return Ignore{}, fault(sandbox.ErrInvalid, name, 1, "name directories", "it has more than %d patterns", maxPatterns)
	}
	for _, p := range patterns {
		if _, err := patternmatcher.New([]string{p}); err != nil {
			return Ignore{}, fault(sandbox.ErrInvalid, name, 1, "check its brackets", "%s is no pattern", quote(p))
		}
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return Ignore{}, fault(sandbox.ErrInvalid, name, 1, "", "%v", err)
	}
	return Ignore{m}, nil
}

// Match says whether a file is hidden. Its path is relative to the build's directory, with /
// between its elements. A file below a hidden directory is hidden, unless a later pattern
// with ! shows it: where Excepts is true a hidden directory is still to be walked.
func (i Ignore) Match(file string) (bool, error) {
	if i.patterns == nil {
		return false, nil
	}
	return i.patterns.MatchesOrParentMatches(file)
}

// Excepts says whether a pattern with ! may show what is below a hidden directory.
func (i Ignore) Excepts() bool { return i.patterns != nil && i.patterns.Exclusions() }
