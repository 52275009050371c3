// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// WriteAll writes the files that next gives, until it gives io.EOF, as one call. Each path is
// decided when it comes. What was written before an error stays.
func (f *Files) WriteAll(ctx context.Context, o sandbox.WriteOptions, next func() (p string, r io.Reader, err error)) (all []sandbox.WrittenFile, err error) {
	err = f.change(ctx, policy.WriteFile, func(a *fileCall) ([]sandbox.File, error) {
		body, out := io.Pipe()
		w := &formWriter{call: a, next: next, out: multipart.NewWriter(out)}
		passed := make(chan error, 1)
		go func() {
			err := w.pass(ctx)
			out.CloseWithError(err)
			passed <- err
		}()
		all, err = a.agent.UploadForm(ctx, w.out.FormDataContentType(), body, o)
		body.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		if own := <-passed; w.ended {
			err = own
		}
		return w.files, err
	})
	return all, err
}

// formWriter writes files as a form for the agent, each by the path that was decided for it.
type formWriter struct {
	call  *fileCall
	next  func() (p string, r io.Reader, err error)
	out   *multipart.Writer
	files []sandbox.File
	ended bool // a file could not be had, or is refused: the agent is not why
}

// pass writes the form. An error ends it: the agent hears that its request broke off, and
// leaves what it has of the file.
func (w *formWriter) pass(ctx context.Context) error {
	for {
		p, r, err := w.next()
		if err == io.EOF {
			return w.out.Close()
		}
		if err == nil {
			p = InHome(w.call.User.Home, p)
			err = w.call.allow(ctx, w.call.kind, p)
		}
		header, herr := formPart(p)
		if err = cmp.Or(err, herr); err != nil {
			w.ended = true
			return err
		}
		to, err := w.out.CreatePart(header)
		if err != nil {
			return err
		}
		t := newTally()
		if _, err := io.Copy(io.MultiWriter(to, &t), r); err != nil {
			return err
		}
		w.files = append(w.files, t.file(p, true))
	}
}

// formPart begins a part of a form: the file of path p, as the agent reads it.
func formPart(p string) (textproto.MIMEHeader, error) {
	disposition := mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": p})
	if disposition == "" {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "file", "its name cannot be passed on")
	}
	return textproto.MIMEHeader{"Content-Disposition": {disposition}}, nil
}
