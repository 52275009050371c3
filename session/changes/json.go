// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"encoding/json"
	"unicode/utf8"
)

// A name on Linux is bytes. JSON has text, so an entry whose path or link is none has
// the bytes beside it.
type entryJSON struct {
	plainEntry
	PathBytes []byte `json:"path_bytes,omitempty"`
	LinkBytes []byte `json:"link_bytes,omitempty"`
}

type plainEntry Entry

// MarshalJSON writes names that are no text as bytes, too.
func (e Entry) MarshalJSON() ([]byte, error) {
	j := entryJSON{plainEntry: plainEntry(e)}
	if !utf8.ValidString(e.Path) {
		j.Path, j.PathBytes = Shown(e.Path), []byte(e.Path)
	}
	if !utf8.ValidString(e.Link) {
		j.Link, j.LinkBytes = Shown(e.Link), []byte(e.Link)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var j entryJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*e = Entry(j.plainEntry)
	if j.PathBytes != nil {
		e.Path = string(j.PathBytes)
	}
	if j.LinkBytes != nil {
		e.Link = string(j.LinkBytes)
	}
	return nil
}
