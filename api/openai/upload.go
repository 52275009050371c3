// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"path"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// createFile takes a file as a form, or copies one of another container.
func (s *Server) createFile(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	b, err := s.container(c)
	if err != nil {
		return err
	}
	var p place
	if kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		p, err = s.upload(c, b)
	} else {
		p, err = s.byID(c, b)
	}
	if err != nil {
		return err
	}
	f, err := s.view(c, b, p)
	if err != nil {
		return err
	}
	return c.answer(f)
}

// upload writes the file of a form, which is not held.
func (s *Server) upload(c *call, b *persistent.Sandbox) (place, error) {
	defer c.control.SetReadDeadline(time.Time{})
	c.r.Body = struct {
		io.Reader
		io.Closer
	}{api.TransferReader{Reader: c.r.Body, Control: c.control}, c.r.Body}
	form, err := c.r.MultipartReader()
	if err != nil {
		return place{}, wrong("", "invalid_value", "the form cannot be read")
	}
	part, err := form.NextPart()
	if err != nil {
		return place{}, wrong("file", "missing_required_parameter", "the form has no file")
	}
	switch part.FormName() {
	case "file":
	case "file_id":
		id, err := io.ReadAll(io.LimitReader(part, 8<<10))
		if err != nil {
			return place{}, wrong("file_id", "invalid_value", "the form cannot be read")
		}
		if err := ended(form); err != nil {
			return place{}, err
		}
		return s.copyHere(c, b, string(id))
	default:
		return place{}, wrong(part.FormName(), "unsupported_parameter", api.Quoted(part.FormName())+" is not carried by this server; a form has one field, file or file_id")
	}
	name := part.FileName() // without directories
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') || persistent.CheckPath(name) != nil {
		return place{}, wrong("file", "invalid_value", "the file has no name that can be used")
	}
	p := place{b.ID, name}
	return p, s.write(c, p, part, func() error { return ended(form) })
}

// ended says that a form has ended, by its last boundary: one that was cut off is an
// error that wraps io.EOF.
func ended(form *multipart.Reader) error {
	if _, err := form.NextPart(); err != io.EOF {
		return wrong("", "unsupported_parameter", "the form is not whole, or has more than one field")
	}
	return nil
}

// partial begins the names of files that are on their way.
const partial = ".caisson-"

// write writes a file, which is in its place only when it is whole and checked.
func (s *Server) write(c *call, p place, from io.Reader, check func() error) error {
	o := sandbox.WriteOptions{Atomic: true, Metadata: map[string]string{sourceKey: "user"}}
	_, err := s.filesOf(c, p.box).Write(c.ctx, p.path(), &checked{Reader: from, check: check}, o)
	return err
}

// checked ends with an error where check has one, which it asks at the end.
type checked struct {
	io.Reader
	check func() error
	end   error // what the first end was
}

// Read reads, and has check's error in place of io.EOF.
func (c *checked) Read(p []byte) (int, error) {
	if c.end != nil {
		return 0, c.end
	}
	n, err := c.Reader.Read(p)
	if err == io.EOF { // check reads on, and does so once
		if failed := c.check(); failed != nil {
			err = failed
		}
		c.end = err
	}
	return n, err
}

// byID copies the file of another container that a request in JSON names.
func (s *Server) byID(c *call, b *persistent.Sandbox) (place, error) {
	o, err := c.body()
	if err != nil {
		return place{}, err
	}
	if err := o.carried("file_id"); err != nil {
		return place{}, err
	}
	id, err := o.text("file_id", 8<<10)
	if err == nil && id == "" {
		err = wrong("file_id", "missing_required_parameter", "there is neither a file nor a file_id")
	}
	if err != nil {
		return place{}, err
	}
	return s.copyHere(c, b, id)
}

func (s *Server) copyHere(c *call, b *persistent.Sandbox, id string) (place, error) {
	sources, err := s.sources(c, []string{id})
	if err != nil {
		return place{}, err
	}
	return place{b.ID, path.Base(sources[0].rel)}, s.copyFile(c, sources[0], b)
}

// sources are the files that are to be copied, each of a container of this key's.
func (s *Server) sources(c *call, ids []string) ([]place, error) {
	var out []place
	for _, id := range ids {
		p, err := parseFileID(id)
		if err != nil {
			return nil, wrong("file_ids", "not_found", api.Quoted(id)+" is no file of a container; there is no other store of files here: upload it to the container")
		}
		if b, err := s.o.Sandboxes.Handle(c.key, p.box).Get(c.ctx); err != nil || !isContainer(b) {
			return nil, notFound("file", id, nil)
		}
		out = append(out, p)
	}
	return out, nil
}

// copyFile copies a file to another container of the same key's, by its last name.
func (s *Server) copyFile(c *call, from place, to *persistent.Sandbox) error {
	files := s.filesOf(c, from.box)
	if e, err := files.Stat(c.ctx, from.path()); err != nil || !plain(e) {
		return notFound("file", fileID(from.box, from.rel), err)
	}
	d, err := files.Read(c.ctx, from.path(), nil)
	if err != nil {
		return err
	}
	defer d.Close() // for a panic
	err = s.write(c, place{to.ID, path.Base(from.rel)}, d, func() error { return nil })
	return errors.Join(err, d.CloseWithError(err))
}
