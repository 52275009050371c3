// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"cmp"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
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

// sourceKey marks what came by this API, as metadata of the file. Programs inside could set
// it, too: it is for people.
const sourceKey = "caisson-source"

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
		p.rel == "" || path.Clean("/"+p.rel) != "/"+p.rel, persistent.CheckPath(p.path()) != nil:
		return place{}, none
	}
	return p, nil
}

func fileView(b *persistent.Sandbox, e sandbox.FileInfo, rel string) File {
	f := File{
		ID: fileID(b.ID, rel), Object: "container.file", ContainerID: containerID(b), CreatedAt: unix(e.ModTime), Bytes: e.Size,
		Path: path.Join(dataDir, rel), Source: "assistant",
	}
	if e.Metadata[sourceKey] == "user" {
		f.Source = "user"
	}
	return f
}

// plain says that an entry is a file itself, and no link to one.
func plain(e sandbox.FileInfo) bool { return e.Kind == sandbox.RegularFile && e.Target == "" }

// file finds the container and the file that a request is about.
func (s *Server) file(c *call) (*persistent.Sandbox, place, error) {
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

// view asks a container about a file of its.
func (s *Server) view(c *call, b *persistent.Sandbox, p place) (File, error) {
	e, err := s.filesOf(c, b.ID).Stat(c.ctx, p.path())
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
	f, err := s.view(c, b, p)
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
	f, err := s.view(c, b, p)
	if err != nil {
		return err
	}
	if err := s.filesOf(c, p.box).Remove(c.ctx, p.path()); err != nil {
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
	if _, err := s.view(c, b, p); err != nil {
		return err
	}
	d, err := s.filesOf(c, p.box).Read(c.ctx, p.path(), c.r.Header)
	if err != nil {
		return err
	}
	defer d.Close() // for a panic
	maps.Copy(c.w.Header(), d.Header)
	// Whatever it is, it is not shown as a page here.
	c.w.Header().Set("Content-Disposition", "attachment")
	c.w.WriteHeader(d.Status)
	_, err = io.Copy(c.w, d)
	if errors.Join(err, d.CloseWithError(err)) != nil {
		panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
	}
	return nil
}

// filesOf are the files of a container.
func (s *Server) filesOf(c *call, box string) *persistent.Files {
	return s.o.Sandboxes.Handle(c.key, box).Files("openai", "")
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
	all, err := s.filesOf(c, b.ID).List(c.ctx, dataDir, maxDepth)
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

// maxDepth is how many directories below /mnt/data are looked into.
const maxDepth = 32

// removed are the files that were removed last, so that who deletes while paging
// can go on.
type removed struct {
	mu    sync.Mutex
	files []File
}

// maxRemoved is how many there are, of all keys together.
const maxRemoved = 4096

func (r *removed) add(f File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == maxRemoved {
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
