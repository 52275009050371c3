// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"io/fs"
	"time"
)

// FileInfo describes a file or directory of a running sandbox, as the agent inside says it.
// It is for people and for further calls inside; none of it is a name on the host.
type FileInfo struct {
	Name    string
	Path    string   // absolute, inside
	Kind    FileKind // of what a link leads to
	Size    int64    // bytes
	Mode    fs.FileMode
	ModTime time.Time
	Target  string // where a symbolic link leads, or its own path when it leads nowhere; empty for others
	Owner   string
	Group   string

	// Permissions are the file's own as text, "drwxr-xr-x"; Mode is that of what a link
	// leads to.
	Permissions string
	// Metadata is what came with an upload; see WriteOptions.
	Metadata map[string]string
}

// FileKind is what a file is.
type FileKind int

// The kinds of files. OtherFile is a device, a pipe, a socket, or a link that leads
// nowhere.
const (
	OtherFile FileKind = iota
	RegularFile
	Directory
)

// WriteOptions say how a file of a running sandbox is written. The zero value writes
// plain bytes in place.
type WriteOptions struct {
	// Mode of the file; 0 leaves it to the umask (0644), or as it was.
	Mode fs.FileMode
	// Atomic puts the file in place only when it is whole, as a new file.
	Atomic bool
	// Encoding is gzip when the bytes are packed; they are unpacked inside. Empty is plain.
	Encoding string
	// Metadata replaces what the file had, by lower-case names.
	Metadata map[string]string
}

// WrittenFile is a file that was written.
type WrittenFile struct {
	Path     string // absolute, inside
	Metadata map[string]string
}

// WatchOptions say what is watched of a directory.
type WatchOptions struct {
	Recursive bool // what is below it, too, directories that appear later included
	Entries   bool // changes come with their files, where there is one still
}

// FileChange is something that happened to a file of a watched directory.
type FileChange struct {
	Name string // from the watched directory; "." is itself
	Kind ChangeKind
	File *FileInfo // nil when it was not asked for, or was gone
}

// ChangeKind is what happened, in E2B's word.
type ChangeKind string

// The kinds of a FileChange. Moving a file here is a FileCreated, and moving it away a
// FileRenamed of its old name.
const (
	FileCreated  ChangeKind = "EVENT_TYPE_CREATE"
	FileChanged  ChangeKind = "EVENT_TYPE_WRITE"
	FileRemoved  ChangeKind = "EVENT_TYPE_REMOVE"
	FileRenamed  ChangeKind = "EVENT_TYPE_RENAME"
	FileChmodded ChangeKind = "EVENT_TYPE_CHMOD"
)
