// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
)

// Changes is what is kept of what was changed in a workspace.
type Changes struct {
	ID      string   `json:"id,omitempty"` // of the change set; empty: nothing was kept
	Digest  string   `json:"digest,omitempty"`
	Files   int      `json:"files"`             // that were added, changed or removed
	Held    int      `json:"held,omitempty"`    // that are applied only where a person names them
	Ignored int      `json:"ignored,omitempty"` // that .gitignore ignores, and that were not kept
	Applied []string `json:"applied,omitempty"`
	Problem string   `json:"problem,omitempty"` // why nothing was kept or, with an ID, applied
	Hint    string   `json:"hint,omitempty"`
}

// KeepChanges keeps what was changed so far in the workspace of a running sandbox, which
// goes on; ignored keeps also what .gitignore files ignore. It is nil when nothing was
// changed that is kept.
func (c *Client) KeepChanges(ctx context.Context, id string, ignored bool) (*Changes, error) {
	in := struct {
		Ignored bool `json:"ignored,omitempty"`
	}{ignored}
	var a struct{ Changes *Changes }
	err := c.boxCall(ctx, http.MethodPost, id, "/changes", nil, in, &a)
	return a.Changes, err
}
