// SPDX-License-Identifier: Apache-2.0

package envd

// envd's watches. A stream of WatchDir has WatchEvents; watchers are asked.
const (
	PathWatchDir         = "/filesystem.Filesystem/WatchDir"
	PathCreateWatcher    = "/filesystem.Filesystem/CreateWatcher"
	PathGetWatcherEvents = "/filesystem.Filesystem/GetWatcherEvents"
	PathRemoveWatcher    = "/filesystem.Filesystem/RemoveWatcher"
)

// WatchRequest is the request of WatchDir and CreateWatcher.
type WatchRequest struct {
	Path         string `json:"path"`
	Recursive    bool   `json:"recursive,omitempty"`
	IncludeEntry bool   `json:"includeEntry,omitempty"`
}

// WatchEvent is one message of WatchDir: Start first.
type WatchEvent struct {
	Start      *struct{} `json:"start,omitempty"`
	Filesystem *Change   `json:"filesystem,omitempty"`
	Keepalive  *struct{} `json:"keepalive,omitempty"`
}

// Change is one change.
type Change struct {
	Name  string `json:"name"` // from the watched directory
	Type  string `json:"type"`
	Entry *Entry `json:"entry,omitempty"`
}

// The types of a Change.
const (
	Created  = "EVENT_TYPE_CREATE"
	Changed  = "EVENT_TYPE_WRITE"
	Removed  = "EVENT_TYPE_REMOVE"
	Renamed  = "EVENT_TYPE_RENAME" // away from this name
	Chmodded = "EVENT_TYPE_CHMOD"
)

// WatcherAnswer is CreateWatcher's.
type WatcherAnswer struct {
	WatcherID string `json:"watcherId"`
}

// WatcherRequest is the request of GetWatcherEvents and RemoveWatcher.
type WatcherRequest struct {
	WatcherID string `json:"watcherId"`
}

// WatcherEvents is GetWatcherEvents' answer.
type WatcherEvents struct {
	Events []*Change `json:"events"`
}
