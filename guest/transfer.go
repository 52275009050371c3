// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Download is a file on its way out, as HTTP has it: whole, a part of it, or the
// news that it has not changed. Close its Body.
type Download struct {
	Status int // 200, 206 or 304
	// Header has, of Accept-Ranges, Content-Disposition, Content-Encoding,
	// Content-Length, Content-Range, Content-Type, Last-Modified and Vary, what
	// the agent said: nothing to allocate by. The type is always that of bytes.
	Header http.Header
	Body   io.ReadCloser
}

var (
	downloadAsks    = []string{"Accept-Encoding", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "If-Match", "Range"}
	downloadAnswers = []string{
		"Accept-Ranges", "Content-Disposition", "Content-Encoding", "Content-Length", "Content-Range", "Last-Modified", "Vary",
	}
)

// Download begins to read a file. Of header the conditions and the wish for a
// part or for gzip are passed on; nothing is unpacked here. ctx bounds the
// transfer; without a deadline it has as much time as any. What cannot be had is
// a [*Refusal] with the status for it.
func (c *Client) Download(ctx context.Context, file string, header http.Header) (*Download, error) {
	op := "download " + printable(file)
	if err := wire.CheckName(file); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	asks := http.Header{}
	for _, name := range downloadAsks {
		if v := header.Get(name); v != "" && len(v) < 1024 {
			asks.Set(name, v)
		}
	}
	ctx, cancel := c.transfer(ctx)
	l, err := c.open(ctx, op, http.MethodGet, wire.PathFiles+"?"+url.Values{"path": {file}}.Encode(), asks, nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	d := &Download{Status: l.resp.StatusCode, Header: http.Header{"Content-Type": {"application/octet-stream"}}, Body: &transfer{l, cancel}}
	for _, name := range downloadAnswers {
		if v := l.resp.Header.Get(name); v != "" && len(v) < 1024 {
			d.Header.Set(name, v)
		}
	}
	return d, nil
}

// transfer is the body of a download.
type transfer struct {
	*long
	cancel context.CancelCauseFunc
}

func (t *transfer) Read(p []byte) (int, error) {
	n, err := t.answer.Read(p)
	if err != nil && err != io.EOF {
		err = t.lost(err)
	}
	return n, err
}

func (t *transfer) Close() error {
	err := t.long.Close()
	t.cancel(nil)
	return err
}

// Upload is files on their way in.
type Upload struct {
	// Path is where the file goes. It may be empty for a form, whose parts named
	// "file" then say it by their names, directories included.
	Path string
	// ContentType is application/octet-stream or multipart/form-data with its
	// boundary, ContentEncoding empty or gzip.
	ContentType, ContentEncoding string
	// Metadata has X-Metadata-* headers, which become the files' metadata and
	// replace what they had; others in it are not passed on.
	Metadata http.Header
	Body     io.Reader
}

// Written is a file that was written.
type Written struct {
	Name, Path string // Path is absolute, inside
	Metadata   map[string]string
}

// Upload writes files and the directories above them. ctx bounds the transfer;
// without a deadline it has as much time as any. For a full disk the [*Refusal]
// has the status 507.
func (c *Client) Upload(ctx context.Context, u Upload) ([]Written, error) {
	op := "upload " + printable(u.Path)
	if err := wire.CheckName(u.Path); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	header := http.Header{"Content-Type": {u.ContentType}}
	if u.ContentEncoding != "" {
		header.Set("Content-Encoding", u.ContentEncoding)
	}
	maps.Copy(header, metadataOf(u.Metadata))
	target := wire.PathFiles
	if u.Path != "" {
		target += "?" + url.Values{"path": {u.Path}}.Encode()
	}
	ctx, cancel := c.transfer(ctx)
	defer cancel(nil)
	source := &failing{r: u.Body}
	if err := c.acquire(ctx); err != nil {
		return nil, c.lost(op, err)
	}
	defer c.release()
	resp, err := c.sendHeader(ctx, http.MethodPost, target, header, source)
	if err != nil {
		if e := source.failure(); e != nil {
			return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "what is to be written cannot be read", Cause: e}
		}
		return nil, c.lost(op, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, answeredError(op, resp)
	}
	var answer []wire.Written
	if err := c.decode(op, resp.Body, &answer); err != nil {
		return nil, err
	}
	all := make([]Written, 0, len(answer))
	for _, w := range answer {
		all = append(all, written(w))
	}
	return all, nil
}

// metadataOf is the part of h that is metadata.
func metadataOf(h http.Header) http.Header {
	m := http.Header{}
	for name, values := range h {
		if strings.HasPrefix(name, wire.MetadataHeader) && len(values) > 0 {
			m[name] = values[:1]
		}
	}
	return m
}

func written(w wire.Written) Written {
	return Written{Name: path.Base(w.Path), Path: w.Path, Metadata: w.Metadata}
}

// Compose makes one file of several, in their order, and removes these. When it
// fails nothing has changed.
func (c *Client) Compose(ctx context.Context, from []string, to string) (Written, error) {
	var w wire.Written
	err := c.call(ctx, "compose "+printable(to), wire.PathCompose, wire.ComposeRequest{Sources: from, Destination: to}, &w)
	return written(w), err
}
