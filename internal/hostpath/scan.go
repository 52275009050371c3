// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Action is what has to be done with a path of a scanned tree.
type Action int

const (
	// Hide: an empty file or directory is mounted over it (sandbox.Mask).
	Hide Action = iota
	// Keep: it is mounted over itself, read-only (a Mask with ReadOnly).
	Keep
	// Pin: a directory on the way to what is kept, which must not be renamed,
	// or another could be put in its place. It is mounted over itself with the
	// tree's own access: what is a mountpoint cannot be renamed.
	Pin
	// Watch: nothing is mounted; it is compared after the run ([Baseline.Look]).
	Watch
)

// String is the word for the action.
func (a Action) String() string { return [...]string{"hide", "keep", "pin", "watch"}[a] }

// Match is one path of a scanned tree that must not be shown as it is.
type Match struct {
	Rel    string // relative to the tree, clean
	Dir    bool
	Do     Action
	Why    string // a phrase: which glob denies it, or what runs it
	Absent bool   // it does not exist yet: Placeholders.Make makes it
	Text   string // what its placeholder holds

	missing bool // it is watched for coming into being

	// everywhere, of the first match, is what is run in new repositories, too.
	everywhere []namedEverywhere

	kinds kindsOf // of a repository that code may write in: what is in it
}

// kindsOf are the names in one directory, with what they are.
type kindsOf map[string]fs.FileMode

// Input is a file that was read to decide a run, or to make it: a policy, a secret, a
// script.
type Input struct {
	Path string   // absolute, as it was named; empty where no name led to it
	File *os.File // what was read; nil is what Path names now
	// Own is a file that caisson reads by itself, such as its program. One that it cannot
	// reach is passed over, and its other names in the tree are kept, too.
	Own bool
}

// ScanOptions say what Scan looks for.
type ScanOptions struct {
	// Deny are globs of paths to hide: "**/.env", "secrets/**", "*.pem". One
	// without a slash means any depth. Case does not matter.
	Deny []string
	// Protect looks for what later runs on the host; it is for trees that the
	// sandbox may change.
	Protect bool
	// GitWrite lets code write in repositories, but for their configuration, their
	// hooks and what these name. Without it they are kept as a whole.
	GitWrite bool
	// Peers looks for sockets and named pipes, at whose other end is a process
	// of the host, and hides them. It is for levels whose code talks to the
	// host's kernel itself, where a read-only mount does not keep code from
	// them.
	Peers bool
	// Inputs are files that were read for the run, and that the code of the run must not
	// be able to change; for trees that the sandbox may change.
	Inputs []Input

	maxEntries int // for tests; 0 is the usual
}

// maxMatches is how many paths may need a mount of their own; each costs time
// at the start and memory while it runs.
const maxMatches = 2_000

// pinAbove adds the directories above all that is kept: with one of them renamed,
// code could make another that has the name.
func pinAbove(ms []Match) []Match {
	pinned := map[string]bool{}
	for _, m := range slices.Clone(ms) {
		if m.Do != Keep && m.Do != Pin {
			continue
		}
		for dir := path.Dir(m.Rel); dir != "." && !pinned[dir]; dir = path.Dir(dir) {
			pinned[dir] = true
			ms = append(ms, Match{Rel: dir, Dir: true, Do: Pin, Why: "it holds " + m.Rel})
		}
	}
	return ms
}

// settle puts matches in the order in which they are to be mounted (what is
// above first) and drops what another one covers: all below a hidden
// directory, and what is to be kept or pinned below a kept one.
func settle(ms []Match) []Match {
	slices.SortFunc(ms, func(a, b Match) int {
		return cmp.Or(comparePaths(a.Rel, b.Rel), cmp.Compare(a.Do, b.Do))
	})
	var out []Match
	var hidden, kept string // directories that cover what follows
	for _, m := range ms {
		if n := len(out); n > 0 && out[n-1].Rel == m.Rel {
			if m.kinds != nil {
				out[n-1].kinds = m.kinds
			}
			continue // Hide before Keep before Pin before Watch
		}
		if hidden != "" && strings.HasPrefix(m.Rel, hidden+"/") {
			continue
		}
		if kept != "" && strings.HasPrefix(m.Rel, kept+"/") && m.Do != Hide {
			continue
		}
		switch {
		case m.Do == Hide && m.Dir:
			hidden = m.Rel
		case m.Do == Keep && m.Dir:
			kept = m.Rel
		}
		out = append(out, m)
	}
	return out
}

// comparePaths orders paths so that everything below a directory follows it
// at once: the slash sorts before all other bytes.
func comparePaths(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}
