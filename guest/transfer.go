// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
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
// a [*sandbox.AgentError] with the status for it.
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
	l, err := c.open(ctx, op, http.MethodGet, envd.PathFiles+"?"+url.Values{"path": {file}}.Encode(), asks, nil)
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

// Upload writes a file from r, and the directories above it. ctx bounds the transfer;
// without a deadline it has as much time as any. For a full disk the [*sandbox.AgentError]
// has the status 507.
func (c *Client) Upload(ctx context.Context, file string, r io.Reader, o sandbox.WriteOptions) (sandbox.WrittenFile, error) {
	op := "write " + printable(file)
	if err := wire.CheckName(file); err != nil {
		return sandbox.WrittenFile{}, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	all, err := c.upload(ctx, op, url.Values{"path": {file}}, "application/octet-stream", r, o)
	switch {
	case err != nil:
		return sandbox.WrittenFile{}, err
	case len(all) != 1:
		return sandbox.WrittenFile{}, sandbox.Errorf(sandbox.ErrUnavailable, op, "the guest agent's answer is not of one file")
	}
	return all[0], nil
}

// UploadForm is Upload of several files, as a form of the type kind: its parts named "file"
// say their paths by their file names. A file costs a millisecond less than by itself.
func (c *Client) UploadForm(ctx context.Context, kind string, form io.Reader, o sandbox.WriteOptions) ([]sandbox.WrittenFile, error) {
	return c.upload(ctx, "write files", url.Values{}, kind, form, o)
}

func (c *Client) upload(ctx context.Context, op string, q url.Values, kind string, r io.Reader, o sandbox.WriteOptions) ([]sandbox.WrittenFile, error) {
	if o.Atomic {
		q.Set("atomic", "1")
	}
	if o.Mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(o.Mode.Perm()), 8))
	}
	header := http.Header{"Content-Type": {kind}}
	if o.Encoding != "" {
		header.Set("Content-Encoding", o.Encoding)
	}
	for name, value := range o.Metadata {
		header.Set(envd.MetadataHeader+name, value)
	}
	ctx, cancel := c.transfer(ctx)
	defer cancel(nil)
	source := &failing{r: r}
	if err := c.acquire(ctx); err != nil {
		return nil, c.lost(op, err)
	}
	defer c.release()
	resp, err := c.sendHeader(ctx, http.MethodPost, envd.PathFiles+"?"+q.Encode(), header, source)
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
	var answer []envd.Written
	if err := c.decode(op, resp.Body, &answer); err != nil {
		return nil, err
	}
	all := make([]sandbox.WrittenFile, 0, len(answer))
	for _, w := range answer {
		all = append(all, written(w))
	}
	return all, nil
}

func written(w envd.Written) sandbox.WrittenFile {
	return sandbox.WrittenFile{Path: w.Path, Metadata: w.Metadata}
}

// Compose makes one file of several, in their order, and removes these. When it
// fails nothing has changed.
func (c *Client) Compose(ctx context.Context, from []string, to string) (sandbox.WrittenFile, error) {
	var w envd.Written
	err := c.call(ctx, "compose "+printable(to), envd.PathCompose, envd.ComposeRequest{Sources: from, Destination: to}, &w)
	return written(w), err
}
