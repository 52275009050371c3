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

// Files are the files of a sandbox. Paths are the sandbox's; what is relative begins at its
// user's home.
type Files struct {
	client *Client
	id     string // of the sandbox
}

// Files are the files of a sandbox. Nothing is asked yet.
func (c *Client) Files(id string) *Files { return &Files{c, id} }

func at(path string) url.Values { return url.Values{"path": {path}} }

// Read begins to read a file. The caller closes it.
func (f *Files) Read(ctx context.Context, path string) (io.ReadCloser, error) {
	p, err := box(f.id, "/files")
	if err != nil {
		return nil, err
	}
	req, err := f.client.request(ctx, http.MethodGet, p, at(path), nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.client.send(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Write writes a file from r, and the directories above it. A mode of 0 leaves it as it is,
// or is 0644.
func (f *Files) Write(ctx context.Context, path string, r io.Reader, mode fs.FileMode) (*File, error) {
	p, err := box(f.id, "/files")
	if err != nil {
		return nil, err
	}
	q := at(path)
	if mode != 0 {
		q.Set("mode", "0"+strconv.FormatUint(uint64(mode.Perm()), 8))
	}
	req, err := f.client.request(ctx, http.MethodPut, p, q, io.NopCloser(r)) // the caller's own to close
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := f.client.send(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	file := &File{}
	return file, decode(resp.Body, file)
}

// Stat describes a file or directory.
func (f *Files) Stat(ctx context.Context, path string) (*File, error) {
	file := &File{}
	return file, f.client.boxCall(ctx, http.MethodGet, f.id, "/files/info", at(path), nil, file)
}

// List lists a directory, and what is below it down to depth levels; 1 is the directory
// alone.
func (f *Files) List(ctx context.Context, path string, depth int) ([]File, error) {
	q := at(path)
	q.Set("depth", strconv.Itoa(max(depth, 1)))
	var a struct{ Files []File }
	err := f.client.boxCall(ctx, http.MethodGet, f.id, "/files/list", q, nil, &a)
	return a.Files, err
}

// Mkdir makes a directory and those above it.
func (f *Files) Mkdir(ctx context.Context, path string) error {
	return f.client.boxCall(ctx, http.MethodPost, f.id, "/files/directory", at(path), nil, nil)
}

// Rename gives a file or directory another path.
func (f *Files) Rename(ctx context.Context, from, to string) error {
	q := at(from)
	q.Set("to", to)
	return f.client.boxCall(ctx, http.MethodPost, f.id, "/files/move", q, nil, nil)
}

// Remove removes a file, or a directory with all that is in it.
func (f *Files) Remove(ctx context.Context, path string) error {
	return f.client.boxCall(ctx, http.MethodDelete, f.id, "/files", at(path), nil, nil)
}
