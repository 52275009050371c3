// SPDX-License-Identifier: Apache-2.0

package changes

import "time"

// Set is what one run changed in a workspace. It is a value: nothing changes it.
type Set struct {
	Summary
	Root    Root    `json:"root"`
	Entries []Entry `json:"entries"` // sorted by Path
	// Git are the changes of the workspace's own repository, .git, sorted. They are never
	// applied, and not shown one by one.
	Git []Entry `json:"-"`
}

// Root tells a workspace on the host from others.
type Root struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
}

// Summary is what a list shows of a set.
type Summary struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`            // the workspace on the host
	Target  string    `json:"target"`          // and inside
	Owner   string    `json:"owner,omitempty"` // the key that it belongs to; empty is the operator
	Run     string    `json:"run,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Digest  string    `json:"digest"` // of the workspace's identity and all entries, in hex
	Counts
	Repositories []Repository `json:"repositories,omitempty"`
	State        State        `json:"state"`
}

// Counts are the figures of a set.
type Counts struct {
	Files   int   `json:"files"` // entries that are no directory
	Held    int   `json:"held"`  // entries that are held back
	Bytes   int64 `json:"bytes"` // of content that is kept
	Ignored int   `json:"ignored,omitempty"`
	// Skipped are sockets, pipes, devices, and second names of files that are not kept.
	Skipped      int      `json:"skipped,omitempty"`
	SkippedPaths []string `json:"skipped_paths,omitempty"` // the first of them
}

// State says what has been applied of a set.
type State struct {
	Applied   int       `json:"applied,omitempty"` // entries
	Files     *int      `json:"files,omitempty"`   // of them, those that are no directory, as in Counts; nil where an older caisson applied them
	AppliedAt time.Time `json:"applied_at,omitzero"`
	// Unfinished says that an Apply ended half way. The next one goes on with it.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Repository is a .git, under any of its spellings, in which something was changed.
// Nothing of it is applied, and it is kept of the workspace's own alone.
type Repository struct {
	Path    string `json:"path"`
	Changes int    `json:"changes"` // files and directories that were written or removed in it
}

// An Op is what was done to a path.
type Op string

// The operations.
const (
	Add    Op = "add"    // there was nothing
	Change Op = "change" // another content, or another type
	Remove Op = "remove"
	Mode   Op = "mode" // the mode alone
)

// A Type is what a path is.
type Type string

// The types.
const (
	File Type = "file"
	Dir  Type = "dir"
	Link Type = "link"
)

// Entry is what was done to one path.
type Entry struct {
	Path   string   `json:"path"` // relative to the workspace, with slashes
	Op     Op       `json:"op"`
	Type   Type     `json:"type"` // as it is afterwards; of what is removed, as it was
	Mode   uint32   `json:"mode"` // permissions; of a file 0o111 says that it can be run
	Size   int64    `json:"size,omitempty"`
	SHA256 string   `json:"sha256,omitempty"` // of a file's content, in hex
	Link   string   `json:"link,omitempty"`   // where a link leads
	Base   *Base    `json:"base,omitempty"`   // what the host has; nil is nothing
	Held   []string `json:"held,omitempty"`   // why it is held back: phrases
}

// Base is what the host had at a path when the set was made.
type Base struct {
	Type  Type      `json:"type"` // empty for what is no file, directory or link
	Mode  uint32    `json:"mode"`
	Size  int64     `json:"size"`
	Dev   uint64    `json:"dev"`
	Inode uint64    `json:"inode"`
	Ctime time.Time `json:"ctime"`
	Mtime time.Time `json:"mtime"`
	Links uint64    `json:"links,omitempty"`
	// Touched says that it was changed on the host after the run had begun: what the
	// code saw may have been something else. It is a conflict from the start.
	Touched bool `json:"touched,omitempty"`
}

// Exec says whether a file can be run.
func (e *Entry) Exec() bool { return e.Type == File && e.Mode&0o111 != 0 }
