// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"context"
	"crypto/rand"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/bounds"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
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
func (s *Server) upload(c *call, b *session.Sandbox) (place, error) {
	defer c.control.SetReadDeadline(time.Time{})
	c.r.Body = struct {
		io.Reader
		io.Closer
	}{bounds.Reader{Reader: c.r.Body, Control: c.control}, c.r.Body}
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
		return place{}, wrong(part.FormName(), "unsupported_parameter", bounds.Quoted(part.FormName())+" is not carried by this server; a form has one field, file or file_id")
	}
	name := part.FileName() // without directories
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') || wire.CheckName(name) != nil {
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
const partial = ".caisson-part-"

// write writes a file, which is in its place only when it is whole and checked.
func (s *Server) write(c *call, p place, from io.Reader, check func() error) error {
	return s.touch(c, p, policy.WriteFile, func(in *session.FileAction) ([]sandbox.File, error) {
		part, t := place{p.box, partial + rand.Text()}, session.NewTally()
		_, err := in.Agent.Upload(c.ctx, guest.Upload{
			Path: part.path(), ContentType: "application/octet-stream", Metadata: http.Header{sourceHeader: {"user"}}, Body: io.TeeReader(from, t),
		})
		if err == nil {
			err = check()
		}
		if err == nil {
			_, err = in.Agent.MoveTo(c.ctx, part.path(), in.Paths[0])
		}
		if err != nil {
			// Who went away has left what there was of it.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), cleanupPatience)
			defer cancel()
			in.Agent.Remove(ctx, part.path()) // the error that counts is the first
		}
		return []sandbox.File{t.File(in.Paths[0], false)}, err
	})
}

// cleanupPatience is how long a part of a file may take to go.
const cleanupPatience = 10 * time.Second

// byID copies the file of another container that a request in JSON names.
func (s *Server) byID(c *call, b *session.Sandbox) (place, error) {
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

func (s *Server) copyHere(c *call, b *session.Sandbox, id string) (place, error) {
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
			return nil, wrong("file_ids", "not_found", bounds.Quoted(id)+" is no file of a container; there is no other store of files here: upload it to the container")
		}
		if b, err := s.o.Sandboxes.Get(c.ctx, c.key, p.box); err != nil || !isContainer(b) {
			return nil, notFound("file", id, nil)
		}
		out = append(out, p)
	}
	return out, nil
}

// copyFile copies a file to another container of the same key's, by its last name.
func (s *Server) copyFile(c *call, from place, to *session.Sandbox) error {
	return s.touch(c, from, policy.ReadFile, func(in *session.FileAction) ([]sandbox.File, error) {
		if e, err := in.Agent.Stat(c.ctx, in.Paths[0]); err != nil || !plain(e) {
			return nil, notFound("file", fileID(from.box, from.rel), err)
		}
		d, err := in.Agent.Download(c.ctx, in.Paths[0], nil)
		if err != nil {
			return nil, err
		}
		defer d.Body.Close()
		t := session.NewTally()
		err = s.write(c, place{to.ID, path.Base(from.rel)}, io.TeeReader(d.Body, t), func() error { return nil })
		return []sandbox.File{t.File(in.Paths[0], false)}, err
	})
}
