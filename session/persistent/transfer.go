// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"sync"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Download is a file on its way out, as HTTP has it: whole, a part of it, or the news that it
// has not changed. It is a call in the record: the caller must call Close or CloseWithError.
type Download struct {
	Status int // 200, 206 or 304
	// Header has what the agent said of Accept-Ranges, Content-Disposition, Content-Encoding,
	// Content-Length, Content-Range, Last-Modified and Vary: nothing to allocate by. The type
	// is always that of bytes.
	Header http.Header

	ctx    context.Context
	call   *fileCall
	from   *guest.Download
	tally  tally
	whole  bool  // it was read to its end
	failed error // why it could not be read
	once   sync.Once
	err    error
}

// Read begins to read a file. Of header the conditions and the wish for a part or for gzip
// are passed on; nothing is unpacked here. ctx bounds the transfer.
func (f *Files) Read(ctx context.Context, p string, header http.Header) (*Download, error) {
	a, err := f.begin(ctx, policy.ReadFile, p)
	if err != nil {
		return nil, err
	}
	d, err := a.agent.Download(ctx, a.paths[0], header)
	if err != nil {
		return nil, errors.Join(err, a.end(ctx, nil, err))
	}
	return &Download{Status: d.Status, Header: d.Header, ctx: ctx, call: a, from: d, tally: newTally()}, nil
}

// Read reads the file.
func (d *Download) Read(p []byte) (int, error) {
	n, err := d.from.Body.Read(p)
	d.tally.Write(p[:n])
	if err == io.EOF {
		d.whole = true
	} else if err != nil {
		d.failed = err
	}
	return n, err
}

// Close ends the call and records how much was read.
func (d *Download) Close() error { return d.CloseWithError(nil) }

// CloseWithError is Close where err is why what was read could not be passed on. Its own error
// is that of the record. Only the first close counts.
func (d *Download) CloseWithError(err error) error {
	d.once.Do(func() {
		d.from.Body.Close()
		if err == nil {
			err = d.failed
		}
		// What was only a part of the file, or packed, has no digest.
		whole := d.whole && d.Status == http.StatusOK && d.Header.Get("Content-Encoding") == ""
		d.err = d.call.end(d.ctx, []sandbox.File{d.tally.file(d.call.paths[0], whole)}, err)
	})
	return d.err
}

// Write writes a file from r, and the directories above it. ctx bounds the transfer. For a
// full disk the [*sandbox.AgentError] has the status 507.
func (f *Files) Write(ctx context.Context, p string, r io.Reader, o sandbox.WriteOptions) (w sandbox.WrittenFile, err error) {
	err = f.change(ctx, policy.WriteFile, func(a *fileCall) ([]sandbox.File, error) {
		var file sandbox.File
		w, file, err = a.write(ctx, a.paths[0], r, o)
		return []sandbox.File{file}, err
	}, p)
	return w, err
}

// write writes one file, whose path was decided.
func (a *fileCall) write(ctx context.Context, p string, r io.Reader, o sandbox.WriteOptions) (sandbox.WrittenFile, sandbox.File, error) {
	t := newTally()
	w, err := a.agent.Upload(ctx, p, io.TeeReader(r, &t), o)
	return w, t.file(p, o.Encoding == ""), err
}

// tally counts the bytes of a file that go by, and makes their digest.
type tally struct {
	size int64
	sum  hash.Hash
}

func newTally() tally { return tally{sum: sha256.New()} }

// Write counts p. It never fails.
func (t *tally) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	return t.sum.Write(p)
}

// file is what went by, as a record has it: with a digest when it was the file as it is.
func (t *tally) file(p string, whole bool) sandbox.File {
	f := sandbox.File{Path: p, Size: t.size}
	if whole {
		f.SHA256 = hex.EncodeToString(t.sum.Sum(nil))
	}
	return f
}
