// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"slices"
	"time"
)

// Workspace is what has to be known of a sandbox's copy-on-write workspace to say later
// what was changed in it.
type Workspace struct {
	Began time.Time `json:"began"` // of the first sandbox with its files, by the clock of file systems
	// Dev and Inode are the directory on the host.
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	// Below are paths in it that are no part of it: what is mounted there, and what is hidden.
	Below []string `json:"below,omitempty"`
}

func (w *Workspace) clone() *Workspace {
	if w == nil {
		return nil
	}
	c := *w
	c.Below = slices.Clone(w.Below)
	return &c
}
