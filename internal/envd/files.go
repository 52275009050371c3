// SPDX-License-Identifier: Apache-2.0

package envd

// Entry is envd's EntryInfo.
type Entry struct {
	Name          string `json:"name"`
	Type          string `json:"type"` // of what a link leads to
	Path          string `json:"path"`
	Size          int64  `json:"size,string"`
	Mode          uint32 `json:"mode"`
	Permissions   string `json:"permissions"`
	Owner         string `json:"owner"`
	Group         string `json:"group"`
	ModifiedTime  string `json:"modifiedTime,omitempty"`  // RFC 3339
	SymlinkTarget string `json:"symlinkTarget,omitempty"` // where it leads, or its own path

	Metadata map[string]string `json:"metadata,omitempty"`
}

// The types of an Entry.
const (
	TypeFile      = "FILE_TYPE_FILE"
	TypeDirectory = "FILE_TYPE_DIRECTORY"
	TypeOther     = "FILE_TYPE_UNSPECIFIED"
)

// envd's filesystem.Filesystem.
const (
	PathStat    = "/filesystem.Filesystem/Stat"
	PathMakeDir = "/filesystem.Filesystem/MakeDir"
	PathMove    = "/filesystem.Filesystem/Move"
	PathListDir = "/filesystem.Filesystem/ListDir"
	PathRemove  = "/filesystem.Filesystem/Remove"
	PathFiles   = "/files"
	PathCompose = "/files/compose"
)

// PathRequest is the request of Stat, MakeDir and Remove.
type PathRequest struct {
	Path string `json:"path"`
}

// ListRequest lists a directory.
type ListRequest struct {
	Path  string `json:"path"`
	Depth uint32 `json:"depth,omitempty"`
}

// MoveRequest renames.
type MoveRequest struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// EntryAnswer is the answer of Stat, MakeDir and Move.
type EntryAnswer struct {
	Entry *Entry `json:"entry,omitempty"`
}

// ListAnswer is the answer of ListDir.
type ListAnswer struct {
	Entries []*Entry `json:"entries"`
}
