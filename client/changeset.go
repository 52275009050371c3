// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// ChangeSet is what was changed in a workspace, by one run or so far in a sandbox.
type ChangeSet struct {
	ID         string    `json:"id"`
	Digest     string    `json:"digest"` // of all that is in it; ApplyChanges takes it
	Run        string    `json:"run,omitempty"`
	Workspace  string    `json:"workspace"` // where it was inside
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires"`
	Files      int       `json:"files"`
	Held       int       `json:"held,omitempty"` // that are applied only where a person names them
	Bytes      int64     `json:"bytes"`
	Ignored    int       `json:"ignored,omitempty"`
	Applied    int       `json:"applied,omitempty"`
	Unfinished bool      `json:"unfinished,omitempty"`
	Entries    []Change  `json:"entries,omitempty"` // not in lists
}

// Change is what was done to one path. Its names are of the code's making.
type Change struct {
	Path      string   `json:"path"`
	PathBytes []byte   `json:"path_base64,omitempty"` // where it is no UTF-8
	Op        string   `json:"op"`                    // add, change, remove or mode
	Type      string   `json:"type"`                  // file, dir or link
	Mode      string   `json:"mode"`                  // permissions as octal digits
	Size      int64    `json:"size,omitempty"`
	SHA256    string   `json:"sha256,omitempty"`
	Link      string   `json:"link,omitempty"`
	Held      []string `json:"held,omitempty"`     // why it is applied only where a person names it
	Conflict  bool     `json:"conflict,omitempty"` // the host changed it after the run had begun
}

// Applied is what an apply did.
type Applied struct {
	ID        string       `json:"id"`
	Digest    string       `json:"digest"`
	Paths     []string     `json:"paths"` // that were applied
	Already   []string     `json:"already,omitempty"`
	Left      []LeftChange `json:"left,omitempty"` // that are held back
	Conflicts []LeftChange `json:"conflicts,omitempty"`
	Resumed   bool         `json:"resumed,omitempty"`
}

// LeftChange is a path that was not applied.
type LeftChange struct{ Path, Why string }

// changeSet is the path of a change set.
func changeSet(id, rest string) (string, error) {
	if id == "" || strings.Trim(id, "0123456789abcdef") != "" {
		return "", sandbox.Errorf(sandbox.ErrNotFound, "change set "+strconv.Quote(id), "that is no change set's ID")
	}
	return "/changes/" + id + rest, nil
}

// ChangeSets lists the key's change sets, newest first.
func (c *Client) ChangeSets(ctx context.Context) ([]ChangeSet, error) {
	var a struct{ Changes []ChangeSet }
	err := c.call(ctx, http.MethodGet, "/changes", nil, nil, &a)
	return a.Changes, err
}

// ChangeSet shows one with all its entries.
func (c *Client) ChangeSet(ctx context.Context, id string) (*ChangeSet, error) {
	p, err := changeSet(id, "")
	if err != nil {
		return nil, err
	}
	var set *ChangeSet
	for cursor := ""; ; {
		q := url.Values{}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			ChangeSet
			Next string
		}
		if err := c.call(ctx, http.MethodGet, p, q, nil, &page); err != nil {
			return nil, err
		}
		if set == nil {
			set = &page.ChangeSet
		} else {
			set.Entries = append(set.Entries, page.Entries...)
		}
		if cursor = page.Next; cursor == "" || len(page.Entries) == 0 {
			return set, nil
		}
	}
}

// Patch begins to read one as a diff with the files that the daemon's host has now: all of
// it, or what is at a path and below. It is to be read, not to be fed to patch. The caller
// closes it.
func (c *Client) Patch(ctx context.Context, id, path string) (io.ReadCloser, error) {
	q := url.Values{}
	if path != "" {
		q = at(path)
	}
	return c.readChange(ctx, id, "/patch", q)
}

// ReadChange begins to read a file of a change set as it was changed. The caller closes it.
func (c *Client) ReadChange(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return c.readChange(ctx, id, "/files", at(path))
}

func (c *Client) readChange(ctx context.Context, id, rest string, q url.Values) (io.ReadCloser, error) {
	p, err := changeSet(id, rest)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodGet, p, q, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// DropChanges removes a change set.
func (c *Client) DropChanges(ctx context.Context, id string) error {
	p, err := changeSet(id, "")
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, p, nil, nil, nil)
}

// ApplyChanges applies what the key's policy lets be applied without a person
// (changes.apply), or of that the paths that are named, to the workspace on the daemon's
// host. digest is the set's as it was looked at. A conflict is sandbox.ErrConflict, and
// nothing is applied then.
func (c *Client) ApplyChanges(ctx context.Context, id, digest string, paths ...string) (*Applied, error) {
	p, err := changeSet(id, "/apply")
	if err != nil {
		return nil, err
	}
	in := struct {
		Digest string   `json:"digest"`
		Paths  []string `json:"paths,omitempty"`
	}{digest, paths}
	a := &Applied{}
	if err := c.call(ctx, http.MethodPost, p, nil, in, a); err != nil {
		return nil, err
	}
	return a, nil
}
