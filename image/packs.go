// SPDX-License-Identifier: Apache-2.0

package image

import (
	"path/filepath"
	"time"
)

// Pack is a root of this host's files that was packed into one file for virtual machines.
type Pack struct {
	// Digest is of names, modes, owners, sizes and times of all that it has: "sha256:…".
	Digest string `json:"digest"`
	// From is [FromHost] for this host's programs, or the path of a directory; empty where
	// that is not known.
	From string `json:"from,omitempty"`

	Size  int64     `json:"size"`             // on the disk, in bytes
	Files int       `json:"files"`            // names in the tree
	Made  time.Time `json:"made,omitzero"`    // when it was packed
	Used  time.Time `json:"used,omitzero"`    // when it was used last, to the hour
	InUse bool      `json:"in_use,omitempty"` // that a sandbox runs on it now; only List knows
}

// PacksDir is what the directory of packs is called in a state directory.
const PacksDir = "packs"

// PacksIn is where the packs of a state directory lie, as a directory of [PackOptions].Cache and
// FindPacks. A link there is followed: another disk's packs, or another state directory's, are
// as good, and the directory is judged where the link leads.
func PacksIn(stateDir string) string {
	dir := filepath.Join(stateDir, PacksDir)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// FromHost is what packs of this host's programs are made from.
const FromHost = "host"
