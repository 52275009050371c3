// SPDX-License-Identifier: Apache-2.0

package hostpath

import "time"

// Finding is what Look found in a tree that code could write to: something that
// the host may run, and that was not there, or not so, before.
type Finding struct {
	Rel     string // relative to the tree; its last part is the code's to choose
	Problem string // a phrase for people: "it is new, and direnv runs it on entering the directory"
	// Plain says that nothing speaks against it: a new repository whose configuration
	// makes git run nothing.
	Plain bool
}

// Bounds of a Look. What lies beyond one is a Finding itself.
const (
	maxLookEntries = 200_000          // files and directories of a tree
	maxLookDepth   = 200              // directories inside each other
	maxLookTime    = 10 * time.Second // of a tree
	maxFindings    = 200
	maxCompared    = 5_000 // files and directories of something that is compared
	lookChunk      = 1_024 // names that are read of a directory at once
)
