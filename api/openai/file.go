// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/bounds"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// File is a file below /mnt/data of a container.
type File struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	ContainerID string `json:"container_id"`
	CreatedAt   int64  `json:"created_at"` // when it was last written
	Bytes       int64  `json:"bytes"`
	Path        string `json:"path"`
	Source      string `json:"source"` // user, or assistant for what programs have made
}

// sourceHeader marks what came through this door, as metadata of the file. Programs
// inside could set it, too: it is for people.
const sourceHeader = wire.MetadataHeader + "Caisson-Source"

// filePrefix begins a file's ID: the sandbox's own follows, and its path below
// dataDir in base64. Nothing has to be kept to find it again.
const filePrefix = "cfile_"

func fileID(box, rel string) string {
	return filePrefix + box + "_" + base64.RawURLEncoding.EncodeToString([]byte(rel))
}

// place is where a file is.
type place struct{ box, rel string }

func (p place) path() string { return path.Join(dataDir, p.rel) }

// parseFileID is the place that an ID means. The path is one that only the agent
// inside resolves.
func parseFileID(id string) (place, error) {
	none := notFound("file", id, nil)
	box, text, ok := strings.Cut(strings.TrimPrefix(id, filePrefix), "_")
	rel, err := base64.RawURLEncoding.Strict().DecodeString(text)
	p := place{box, string(rel)}
	switch {
	case !ok || err != nil || !strings.HasPrefix(id, filePrefix),
		len(box) != 21 || strings.Trim(box, "0123456789abcdefghijklmnopqrstuvwxyz") != "",
		p.rel == "" || path.Clean("/"+p.rel) != "/"+p.rel, wire.CheckName(p.path()) != nil:
		return place{}, none
	}
	return p, nil
}

func fileView(b *session.Sandbox, e guest.Entry, rel string) File {
	f := File{
		ID: fileID(b.ID, rel), Object: "container.file", ContainerID: containerID(b), CreatedAt: unix(e.ModTime), Bytes: e.Size,
		Path: path.Join(dataDir, rel), Source: "assistant",
	}
	if e.Metadata["caisson-source"] == "user" {
		f.Source = "user"
	}
	return f
}

// plain says that an entry is a file itself, and no link to one.
func plain(e guest.Entry) bool { return e.Kind == guest.RegularFile && e.Target == "" }

// file finds the container and the file that a request is about.
func (s *Server) file(c *call) (*session.Sandbox, place, error) {
	if err := c.noQuery(); err != nil {
		return nil, place{}, err
	}
	b, err := s.container(c)
	if err != nil {
		return nil, place{}, err
	}
	id := c.r.PathValue("file")
	p, err := parseFileID(id)
	if err == nil && p.box != b.ID {
		err = notFound("file", id, nil)
	}
	return b, p, err
}

// stat describes a file.
func (s *Server) stat(c *call, b *session.Sandbox, in *session.Inside, p place) (File, error) {
	e, err := in.Agent.Stat(c.ctx, p.path())
	if err == nil && !plain(e) {
		err = notFound("file", fileID(p.box, p.rel), nil)
	}
	return fileView(b, e, p.rel), err
}

func (s *Server) retrieveFile(c *call) error {
	b, p, err := s.file(c)
	if err != nil {
		return err
	}
	in, leave, err := s.o.Sandboxes.Agent(c.ctx, c.key, b.ID)
	if err != nil {
		return err
	}
	defer leave()
	f, err := s.stat(c, b, in, p)
	if err != nil {
		return err
	}
	return c.answer(f)
}

func (s *Server) removeFile(c *call) error {
	b, p, err := s.file(c)
	if err != nil {
		return err
	}
	in, leave, err := s.o.Sandboxes.Agent(c.ctx, c.key, b.ID)
	if err != nil {
		return err
	}
	defer leave()
	f, err := s.stat(c, b, in, p)
	if err != nil {
		return err
	}
	err = s.touch(c, p, policy.RemoveFile, func(in *session.FileAction) ([]sandbox.File, error) { return nil, in.Agent.Remove(c.ctx, in.Paths[0]) })
	if err != nil {
		return err
	}
	s.files.add(f)
	return c.answer(deleted{f.ID, "container.file.deleted", true})
}

// fileContent gives the bytes.
func (s *Server) fileContent(c *call) error {
	b, p, err := s.file(c)
	if err != nil {
		return err
	}
	in, leave, err := s.o.Sandboxes.Agent(c.ctx, c.key, b.ID)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := s.stat(c, b, in, p); err != nil {
		return err
	}
	begun := false
	err = s.touch(c, p, policy.ReadFile, func(in *session.FileAction) ([]sandbox.File, error) {
		d, err := in.Agent.Download(c.ctx, in.Paths[0], c.r.Header)
		if err != nil {
			return nil, err
		}
		defer d.Body.Close()
		maps.Copy(c.w.Header(), d.Header)
		// Whatever it is, it is not shown as a page here.
		c.w.Header().Set("Content-Disposition", "attachment")
		c.w.WriteHeader(d.Status)
		begun = true
		t := session.NewTally()
		_, err = io.Copy(c.w, io.TeeReader(d.Body, t))
		return []sandbox.File{t.File(in.Paths[0], d.Status != http.StatusOK || d.Header.Get("Content-Encoding") != "")}, err
	})
	if err != nil && begun {
		panic(http.ErrAbortHandler) // only a break says that it is not whole
	}
	return err
}

// touch has do carry out what moves or changes a file, once it is decided and its
// intent recorded.
func (s *Server) touch(c *call, p place, kind policy.Kind, do func(*session.FileAction) ([]sandbox.File, error)) error {
	a, err := s.o.Sandboxes.BeginFiles(c.ctx, c.key, p.box, session.FileCall{Door: "openai", Kind: kind, Paths: []string{p.path()}})
	if err != nil {
		return err
	}
	files, err := do(a)
	if jerr := a.End(c.ctx, files, err); err == nil {
		err = jerr
	}
	return err
}

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
	in, leave, err := s.o.Sandboxes.Agent(c.ctx, c.key, b.ID)
	if err != nil {
		return err
	}
	defer leave()
	f, err := s.stat(c, b, in, p)
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
		return place{}, wrong(part.FormName(), "unsupported_parameter", quoted(part.FormName())+" is not carried by this server; a form has one field, file or file_id")
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
			return nil, wrong("file_ids", "not_found", quoted(id)+" is no file of a container; there is no other store of files here: upload it to the container")
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

// listFiles lists what is below /mnt/data, by when it was written.
func (s *Server) listFiles(c *call) error {
	p, err := c.page()
	if err != nil {
		return err
	}
	b, err := s.container(c)
	if err != nil {
		return err
	}
	in, leave, err := s.o.Sandboxes.Agent(c.ctx, c.key, b.ID)
	if err != nil {
		return err
	}
	all, err := in.Agent.List(c.ctx, dataDir, mostDepth)
	leave()
	if err != nil {
		return err
	}
	var files []File
	for _, e := range all {
		if rel, ok := strings.CutPrefix(e.Path, dataDir+"/"); ok && plain(e) && !strings.HasPrefix(rel, partial) {
			files = append(files, fileView(b, e, rel))
		}
	}
	order := func(x, y File) int { return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.Path, y.Path)) }
	if !p.asc {
		older := order
		order = func(x, y File) int { return older(y, x) }
	}
	slices.SortFunc(files, order)
	if p.after != "" {
		i := slices.IndexFunc(files, func(f File) bool { return f.ID == p.after })
		if i >= 0 {
			files = files[i+1:]
		} else if last, ok := s.files.find(p.after); ok && last.ContainerID == containerID(b) {
			files = slices.DeleteFunc(files, func(f File) bool { return order(f, last) <= 0 })
		} else {
			return wrong("after", "invalid_value", "after: there is no such file any more; begin with the first page")
		}
	}
	out := listed[File]{Object: "list", Data: files, HasMore: len(files) > p.limit}
	if out.HasMore {
		out.Data = files[:p.limit]
	}
	if n := len(out.Data); n > 0 {
		out.FirstID, out.LastID = &out.Data[0].ID, &out.Data[n-1].ID
	} else {
		out.Data = []File{}
	}
	return c.answer(out)
}

// mostDepth is how many directories below /mnt/data are looked into.
const mostDepth = 32

// removed are the files that were removed last, so that who deletes while paging
// can go on.
type removed struct {
	mu    sync.Mutex
	files []File
}

// mostRemoved is how many there are, of all keys together.
const mostRemoved = 4096

func (r *removed) add(f File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == mostRemoved {
		r.files = r.files[1:]
	}
	r.files = append(r.files, f)
}

func (r *removed) find(id string) (File, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.files) - 1; i >= 0; i-- {
		if r.files[i].ID == id {
			return r.files[i], true
		}
	}
	return File{}, false
}
