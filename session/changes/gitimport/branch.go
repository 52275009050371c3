// SPDX-License-Identifier: Apache-2.0

// Package gitimport takes commits that were made in a sandbox over into the repository on
// the host, as one new branch.
//
// It never runs git on the host. It asks for one object after the other, from the tip on,
// and only for those that the repository does not have. Each is bounded, compared with
// the id by which it was asked for, and parsed as strictly as git fsck does it. They are
// written as loose objects, and the branch is made last. No pack, index, replacement,
// alternate, graft, config or hook of the sandbox comes over.
package gitimport

import (
	"time"

	"github.com/caisson-run/caisson/session/changes"
)

// Options say what branch is made, and of what.
type Options struct {
	Branch string
	// Held are paths that come over although they are held back.
	Held []string
	Time time.Time // of a commit that is made of the set
}

// Branched says what came over.
type Branched struct {
	Branch string `json:"branch"`
	Tip    string `json:"tip"`
	// Commits that are new to the repository. Made says that nothing was committed inside,
	// and that the one commit is made of the set.
	Commits int            `json:"commits"`
	Made    bool           `json:"made,omitempty"`
	Left    []changes.Left `json:"left,omitempty"` // not in the commit that was made
}
