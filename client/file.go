// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// File is a file or directory in a sandbox, as its code may have made it: none of
// it is a name on this machine.
type File struct {
	Name     string    `json:"name"`
	Path     string    `json:"path"`
	Kind     string    `json:"kind"` // file, directory or other
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"` // permissions as octal digits
	Modified time.Time `json:"modified"`
	Owner    string    `json:"owner,omitempty"`
	Group    string    `json:"group,omitempty"`
	Target   string    `json:"target,omitempty"` // where a symbolic link leads
}

// Paths are the sandbox's; what is relative begins at its user's home.

func at(path string) url.Values { return url.Values{"path": {path}} }

// ReadFile begins to read a file. The caller closes it.
func (c *Client) ReadFile(ctx context.Context, id, path string) (io.ReadCloser, error) {
	p, err := box(id, "/files")
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodGet, p, at(path), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// WriteFile writes a file from r, and the directories above it. A mode of 0 leaves
// it as it is, or is 0644.
func (c *Client) WriteFile(ctx context.Context, id, path string, r io.Reader, mode fs.FileMode) (*File, error) {
	p, err := box(id, "/files")
	if err != nil {
		return nil, err
	}
	q := at(path)
	if mode != 0 {
		q.Set("mode", "0"+strconv.FormatUint(uint64(mode.Perm()), 8))
	}
	req, err := c.request(ctx, http.MethodPut, p, q, io.NopCloser(r)) // the caller's own to close
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.send(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	f := &File{}
	return f, decode(resp.Body, f)
}

// Stat describes a file or directory.
func (c *Client) Stat(ctx context.Context, id, path string) (*File, error) {
	f := &File{}
	return f, c.boxCall(ctx, http.MethodGet, id, "/files/info", at(path), nil, f)
}

// ListFiles lists a directory, and what is below it down to depth levels; 1 is the
// directory alone.
func (c *Client) ListFiles(ctx context.Context, id, path string, depth int) ([]File, error) {
	q := at(path)
	q.Set("depth", strconv.Itoa(max(depth, 1)))
	var a struct{ Files []File }
	err := c.boxCall(ctx, http.MethodGet, id, "/files/list", q, nil, &a)
	return a.Files, err
}

// Mkdir makes a directory and those above it.
func (c *Client) Mkdir(ctx context.Context, id, path string) error {
	return c.boxCall(ctx, http.MethodPost, id, "/files/directory", at(path), nil, nil)
}

// Rename gives a file or directory another path.
func (c *Client) Rename(ctx context.Context, id, from, to string) error {
	q := at(from)
	q.Set("to", to)
	return c.boxCall(ctx, http.MethodPost, id, "/files/move", q, nil, nil)
}

// Remove removes a file, or a directory with all that is in it.
func (c *Client) Remove(ctx context.Context, id, path string) error {
	return c.boxCall(ctx, http.MethodDelete, id, "/files", at(path), nil, nil)
}
