// SPDX-License-Identifier: Apache-2.0

// Package volume keeps directories of sandboxes between runs: an agent's home, its
// caches. One belongs to one workspace, by the directory's device, inode, birth and path,
// and is none of the host's.
//
// What is in a volume is the code's: it is mounted into sandboxes, counted, and removed.
// Nothing here reads it, follows a link in it, or runs it. What is new in a volume is
// written before any code has it.
package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// Store is the volumes of a state directory. Several processes may have it open at once.
type Store struct{ state string }

// In gives the volumes of a state directory, which was opened by package store.
func In(stateDir string) *Store { return &Store{stateDir} }

// Volume is one of them.
type Volume struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Workspace string    `json:"workspace"` // where that was when it was made
	Made      time.Time `json:"made"`
	Used      time.Time `json:"used"`
	Bytes     int64     `json:"bytes"` // on the disk; at least so many where Partly
	Partly    bool      `json:"partly,omitempty"`
	Gone      bool      `json:"gone,omitempty"` // the workspace is no longer there
}

// Options say which volume is wanted.
type Options struct {
	Name      string
	Workspace *hostpath.Source
	// Size is how much it may have, in bytes, when a run begins; 0 is no bound.
	Size int64
	// Files are what a new one has, by path below it.
	Files map[string]string
	// Use is the sandbox that gets it.
	Use hostpath.Use
}

// What is in the directory of a volume: what is known of it, and what code sees.
const (
	volumesDir = "volumes"
	aboutFile  = "volume.json"
	dataDir    = "data"
	makingDir  = ".new-"
	goneDir    = ".gone-"
)

// about is aboutFile.
type about struct {
	Name      string    `json:"name"`
	Workspace string    `json:"workspace"`
	Dev       uint64    `json:"device"`
	Ino       uint64    `json:"inode"`
	Btime     int64     `json:"birth_time,omitempty"` // in ns; 0 where the file system does not say
	Made      time.Time `json:"made"`
}

// idLength is how many hex digits an ID has, and minPrefix how many find it.
const (
	idLength  = 12
	minPrefix = 4
)

// id is that of a workspace's volume. Another directory at the same place, or the same
// one at another, is another workspace. A directory that was removed and made again often
// has the same inode, so its birth counts.
func (a *about) id() string {
	b, _ := json.Marshal([]any{a.Dev, a.Ino, a.Btime, a.Workspace, a.Name}) // strings and numbers
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:idLength]
}

func validID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == idLength/2
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.state, volumesDir}, parts...)...)
}

// Size is how much a volume has, for people.
func (v *Volume) Size() string {
	text := fmt.Sprintf("%.1f MiB", float64(v.Bytes)/(1<<20))
	if v.Partly {
		return "at least " + text
	}
	return text
}
