// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
)

// transfer bounds a call that moves files.
func (c *Client) transfer(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if _, ok := ctx.Deadline(); ok {
		return ctx, cancel
	}
	ctx, stop := context.WithTimeout(ctx, c.options.TransferTimeout)
	return ctx, func(err error) { cancel(err); stop() }
}

// ReadFile copies a file to w and returns how many bytes it had. A file of
// more than limit bytes is an error of kind ErrInvalid, after limit bytes.
func (c *Client) ReadFile(ctx context.Context, path string, w io.Writer, limit int64) (int64, error) {
	op := "read " + printable(path)
	if err := wire.CheckAbsolute(path); err != nil {
		return 0, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	ctx, cancel := c.transfer(ctx)
	defer cancel(nil)
	resp, release, err := c.roundTrip(ctx, http.MethodGet, envd.PathFiles+"?"+url.Values{"path": {path}}.Encode(), nil, "")
	if err != nil {
		return 0, c.lost(op, err)
	}
	defer release()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, answeredError(op, resp)
	}
	body := &watched{r: resp.Body, idle: c.options.IdleTimeout, hangUp: cancel}
	n, err := copyBounded(w, body, limit)
	switch {
	case errors.Is(err, errTooLarge):
		return n, sandbox.Errorf(sandbox.ErrInvalid, op, "it is larger than %d bytes", limit)
	case errors.Is(err, errSink):
		return n, &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "it cannot be saved", Cause: err}
	case err != nil:
		return n, c.lost(op, err)
	}
	return n, nil
}

var (
	errTooLarge = errors.New("too large")
	errSink     = errors.New("write")
)

// copyBounded copies at most limit bytes. Errors of w wrap errSink.
func copyBounded(w io.Writer, r io.Reader, limit int64) (int64, error) {
	buf := make([]byte, chunk)
	var total int64
	for {
		n, err := r.Read(buf)
		over := int64(n) > limit-total
		if over {
			n = int(limit - total)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return total, fmt.Errorf("%w: %w", errSink, err)
		}
		total += int64(n)
		switch {
		case over:
			return total, errTooLarge
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, err
		}
	}
}

// WriteFile writes a file from r, and the directories above it. Its path is absolute.
func (c *Client) WriteFile(ctx context.Context, path string, r io.Reader, o sandbox.WriteOptions) error {
	if err := wire.CheckAbsolute(path); err != nil {
		return &sandbox.Error{Op: "write " + printable(path), Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	_, err := c.Upload(ctx, path, r, o)
	return err
}

// The paths of Stat, List, Mkdir, Remove and Move, and of uploads, downloads and
// watches, are the sandbox's: ~ and what is relative begin at the user's home.

// Stat describes a file or directory.
func (c *Client) Stat(ctx context.Context, path string) (sandbox.FileInfo, error) {
	return c.entryCall(ctx, "stat "+printable(path), envd.PathStat, envd.PathRequest{Path: path}, path)
}

// List lists a directory, and what is below it down to depth levels; 1 is the
// directory alone. A listing of more than some 20 000 entries is an error.
func (c *Client) List(ctx context.Context, path string, depth int) ([]sandbox.FileInfo, error) {
	var a envd.ListAnswer
	q := envd.ListRequest{Path: path, Depth: uint32(max(depth, 1))}
	if err := c.pathCall(ctx, "list "+printable(path), envd.PathListDir, q, &a, path); err != nil {
		return nil, err
	}
	var all []sandbox.FileInfo
	for _, e := range a.Entries {
		if e != nil {
			all = append(all, entry(e))
		}
	}
	return all, nil
}

// Mkdir makes a directory and those above it. One that exists is an error of
// kind ErrConflict.
func (c *Client) Mkdir(ctx context.Context, path string) error {
	_, err := c.MakeDir(ctx, path)
	return err
}

// MakeDir is Mkdir, and describes the directory.
func (c *Client) MakeDir(ctx context.Context, path string) (sandbox.FileInfo, error) {
	return c.entryCall(ctx, "mkdir "+printable(path), envd.PathMakeDir, envd.PathRequest{Path: path}, path)
}

// Remove removes a file, or a directory with all that is in it. What does not
// exist is no error.
func (c *Client) Remove(ctx context.Context, path string) error {
	return c.pathCall(ctx, "remove "+printable(path), envd.PathRemove, envd.PathRequest{Path: path}, &struct{}{}, path)
}

// Move renames, and makes the directories above the destination.
func (c *Client) Move(ctx context.Context, from, to string) error {
	_, err := c.MoveTo(ctx, from, to)
	return err
}

// MoveTo is Move, and describes what was moved.
func (c *Client) MoveTo(ctx context.Context, from, to string) (sandbox.FileInfo, error) {
	return c.entryCall(ctx, "move "+printable(from), envd.PathMove, envd.MoveRequest{Source: from, Destination: to}, from, to)
}

// entryCall is a call that describes an entry.
func (c *Client) entryCall(ctx context.Context, op, service string, q any, paths ...string) (sandbox.FileInfo, error) {
	var a envd.EntryAnswer
	if err := c.pathCall(ctx, op, service, q, &a, paths...); err != nil {
		return sandbox.FileInfo{}, err
	}
	if a.Entry == nil {
		return sandbox.FileInfo{}, sandbox.Errorf(sandbox.ErrUnavailable, op, "the guest agent's answer is empty")
	}
	return entry(a.Entry), nil
}

func (c *Client) pathCall(ctx context.Context, op, service string, q, a any, paths ...string) error {
	for _, p := range paths {
		if err := wire.CheckName(p); err != nil {
			return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
		}
	}
	return c.call(ctx, op, service, q, a)
}

// entry reads the agent's description.
func entry(e *envd.Entry) sandbox.FileInfo {
	t, _ := time.Parse(time.RFC3339Nano, e.ModifiedTime)
	return sandbox.FileInfo{
		Name: e.Name, Path: e.Path, Size: e.Size,
		Mode: fs.FileMode(e.Mode).Perm(), ModTime: t, Target: e.SymlinkTarget, Owner: e.Owner, Group: e.Group,
		Permissions: e.Permissions, Kind: kinds[e.Type], Metadata: e.Metadata,
	}
}

var kinds = map[string]sandbox.FileKind{envd.TypeFile: sandbox.RegularFile, envd.TypeDirectory: sandbox.Directory}

// failing remembers why a reader failed.
type failing struct {
	r io.Reader

	mu  sync.Mutex
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && err != io.EOF {
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
	}
	return n, err
}

func (f *failing) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
