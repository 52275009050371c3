// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/persistent"
)

// ChangeSet is what was changed in a workspace, by one run or so far in a sandbox.
type ChangeSet struct {
	ID         string    `json:"id"`
	Digest     string    `json:"digest" doc:"Of all that is in it: applying takes it"`
	Run        string    `json:"run,omitempty" doc:"The run's, or the sandbox's ID"`
	Workspace  string    `json:"workspace" doc:"Where it was inside"`
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires"`
	Files      int       `json:"files"`
	Held       int       `json:"held,omitempty" doc:"That are applied only where a person names them"`
	Bytes      int64     `json:"bytes" doc:"Of content that is kept"`
	Ignored    int       `json:"ignored,omitempty" doc:"That .gitignore ignores, and that were not kept"`
	Applied    int       `json:"applied,omitempty" doc:"Entries that were applied"`
	Unfinished bool      `json:"unfinished,omitempty" doc:"An apply ended half way; the next one goes on with it"`

	Entries []Change `json:"entries,omitempty" doc:"A page of them; not in lists"`
	Next    string   `json:"next,omitempty" doc:"The cursor of the next page of entries"`
}

// Change is what was done to one path.
type Change struct {
	Path      string   `json:"path" doc:"In the workspace. Made by the code: it may have any characters"`
	PathBytes []byte   `json:"path_base64,omitempty" doc:"Where it is no UTF-8"`
	Op        string   `json:"op" enum:"add,change,remove,mode"`
	Type      string   `json:"type" enum:"file,dir,link"`
	Mode      string   `json:"mode" doc:"Permissions as octal digits"`
	Size      int64    `json:"size,omitempty"`
	SHA256    string   `json:"sha256,omitempty" doc:"Of a file's content"`
	Link      string   `json:"link,omitempty" doc:"Where a link leads"`
	Held      []string `json:"held,omitempty" doc:"Why it is applied only where a person names it"`
	Conflict  bool     `json:"conflict,omitempty" doc:"The host changed it after the run had begun"`
}

func changeSetOf(s *changes.Summary) ChangeSet {
	return ChangeSet{
		ID: s.ID, Digest: s.Digest, Run: s.Run, Workspace: s.Target, Created: s.Created.UTC(), Expires: s.Expires.UTC(),
		Files: s.Files, Held: s.Held, Bytes: s.Bytes, Ignored: s.Ignored, Applied: s.State.Applied, Unfinished: s.State.Unfinished,
	}
}

func changeOf(e *changes.Entry) Change {
	c := Change{
		Path: e.Path, Op: string(e.Op), Type: string(e.Type), Mode: strconv.FormatUint(uint64(e.Mode), 8), Size: e.Size, SHA256: e.SHA256,
		Link: e.Link, Held: e.Held, Conflict: e.Base != nil && e.Base.Touched,
	}
	if !utf8.ValidString(e.Path) {
		c.Path, c.PathBytes = changes.Shown(e.Path), []byte(e.Path)
	}
	if !utf8.ValidString(e.Link) {
		c.Link = changes.Shown(e.Link)
	}
	return c
}

// ChangeSetID names a change set.
type ChangeSetID struct {
	ID string `path:"id" minLength:"1" maxLength:"64" doc:"Of a change set, or the beginning of it where only one has that"`
}

type changeSetAnswer struct{ Body ChangeSet }

type changeSetsAnswer struct {
	Body struct {
		Changes []ChangeSet `json:"changes" doc:"Newest first"`
	}
}

type changeSetWish struct {
	ChangeSetID
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"Entries of a page"`
	Cursor string `query:"cursor" pattern:"^[0-9]{1,9}$" doc:"next of the page before"`
}

// ApplyChanges is what of a change set is to be applied.
type ApplyChanges struct {
	Digest string   `json:"digest" minLength:"64" maxLength:"64" doc:"The set's, as it was looked at"`
	Paths  []string `json:"paths,omitempty" maxItems:"10000" doc:"Files, directories with all that is in them, or patterns; all that the policy lets through when it is left out"`
}

// Applied is what an apply did.
type Applied struct {
	ID        string       `json:"id"`
	Digest    string       `json:"digest"`
	Paths     []string     `json:"paths" doc:"That were applied"`
	Already   []string     `json:"already,omitempty" doc:"That the host has so"`
	Left      []LeftChange `json:"left,omitempty" doc:"That are held back"`
	Conflicts []LeftChange `json:"conflicts,omitempty"`
	Resumed   bool         `json:"resumed,omitempty" doc:"An earlier apply had ended half way, and was finished"`
}

// LeftChange is a path that was not applied.
type LeftChange struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

func appliedOf(a *changes.Applied) *Applied {
	v := &Applied{ID: a.ID, Digest: a.Digest, Paths: a.Paths, Already: a.Already, Resumed: a.Resumed}
	if v.Paths == nil {
		v.Paths = []string{}
	}
	for _, l := range a.Left {
		v.Left = append(v.Left, LeftChange(l))
	}
	for _, c := range a.Conflicts {
		v.Conflicts = append(v.Conflicts, LeftChange(c))
	}
	return v
}

type appliedAnswer struct{ Body *Applied }

// changeSets registers what lists, shows and applies change sets.
func (s *Server) changeSets() {
	op := operation("GET", "/changes", "listChanges", "List the change sets of the key", http.StatusOK)
	register(s, op, func(_ context.Context, k *persistent.Key, _ *struct{}) (*changeSetsAnswer, error) {
		list, err := s.o.Sandboxes.ChangeSets(k).List()
		a := &changeSetsAnswer{}
		a.Body.Changes = []ChangeSet{}
		for i := range list {
			a.Body.Changes = append(a.Body.Changes, changeSetOf(&list[i]))
		}
		return a, err
	})
	op = operation("GET", "/changes/{id}", "getChanges", "Show a change set", http.StatusOK)
	register(s, op, s.getChanges)
	op = operation("GET", "/changes/{id}/patch", "getPatch", "Show a change set as a diff with the files that the host has now", http.StatusOK)
	op.Description = "It is to be read: characters that are not seen are written as numbers, and binary and large files are named."
	op.Responses = map[string]*huma.Response{"200": {Description: "The diff", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: "string"}}}}}
	register(s, op, s.getPatch)
	op = operation("GET", "/changes/{id}/files", "readChange", "Read a file of a change set", http.StatusOK)
	op.Responses = map[string]*huma.Response{"200": {Description: "The file as it was changed; a connection that breaks off says that it is not whole",
		Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}}}
	register(s, op, s.readChange)
	op = operation("DELETE", "/changes/{id}", "dropChanges", "Remove a change set", http.StatusNoContent)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *ChangeSetID) (*struct{}, error) {
		return nil, s.o.Sandboxes.ChangeSets(k).Drop(ctx, in.ID)
	})
	op = operation("POST", "/changes/{id}/apply", "applyChanges", "Apply a change set to the workspace on the daemon's host", http.StatusOK)
	op.Description = "Only what changes.apply of the key's policy lets be applied without a person is. A conflict is a 409, and nothing is applied then."
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		ChangeSetID
		Body ApplyChanges
	}) (*appliedAnswer, error) {
		applied, err := s.o.Sandboxes.ChangeSets(k).Apply(ctx, in.ID, in.Body.Digest, in.Body.Paths)
		if err != nil {
			return nil, err
		}
		return &appliedAnswer{appliedOf(applied)}, nil
	})
}

func (s *Server) getChanges(_ context.Context, k *persistent.Key, in *changeSetWish) (*changeSetAnswer, error) {
	set, err := s.o.Sandboxes.ChangeSets(k).Get(in.ID)
	if err != nil {
		return nil, err
	}
	a := &changeSetAnswer{changeSetOf(&set.Summary)}
	first, _ := strconv.Atoi(in.Cursor) // the pattern says that it is one
	first = min(first, len(set.Entries))
	last := min(first+in.Limit, len(set.Entries))
	for i := first; i < last; i++ {
		a.Body.Entries = append(a.Body.Entries, changeOf(&set.Entries[i]))
	}
	if last < len(set.Entries) {
		a.Body.Next = strconv.Itoa(last)
	}
	return a, nil
}

func (s *Server) getPatch(_ context.Context, k *persistent.Key, in *struct {
	ChangeSetID
	Path string `query:"path" maxLength:"4096" doc:"What is at a path and below; all of it when it is left out"`
}) (*streamed, error) {
	sets := s.o.Sandboxes.ChangeSets(k)
	set, err := sets.Get(in.ID)
	if err != nil {
		return nil, err
	}
	return &streamed{func(ctx huma.Context) {
		_, w := humago.Unwrap(ctx)
		out := &lateHeader{w: w}
		err := sets.WritePatch(out, set.ID, in.Path)
		switch {
		case err != nil && !out.begun:
			writeProblem(w, err)
		case err != nil:
			panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
		case !out.begun:
			out.begin()
		}
	}}, nil
}

// lateHeader is text whose header is written with the first of it, so that what goes wrong
// before has a status.
type lateHeader struct {
	w     http.ResponseWriter
	begun bool
}

func (l *lateHeader) begin() {
	l.begun = true
	l.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	l.w.Header().Set("X-Content-Type-Options", "nosniff")
	l.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer.
func (l *lateHeader) Write(b []byte) (int, error) {
	if !l.begun {
		l.begin()
	}
	return l.w.Write(b)
}

func (s *Server) readChange(_ context.Context, k *persistent.Key, in *struct {
	ChangeSetID
	Path string `query:"path" required:"true" minLength:"1" maxLength:"4096" doc:"In the workspace"`
}) (*streamed, error) {
	contents, err := s.o.Sandboxes.ChangeSets(k).Files(in.ID)
	if err != nil {
		return nil, err
	}
	file, e, err := openChange(contents, in.Path)
	if err != nil {
		contents.Close()
		return nil, err
	}
	return &streamed{func(ctx huma.Context) {
		defer contents.Close()
		defer file.Close()
		_, w := humago.Unwrap(ctx)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", "attachment") // whatever it is, it is not shown as a page here
		w.Header().Set("Content-Length", strconv.FormatInt(e.Size, 10))
		w.WriteHeader(http.StatusOK)
		if n, err := io.Copy(w, file); err != nil || n != e.Size {
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// openChange opens what is at a path of a change set.
func openChange(c *changes.Contents, path string) (io.ReadCloser, *changes.Entry, error) {
	for i := range c.Set.Entries {
		e := &c.Set.Entries[i]
		if e.Path == path && e.Type == changes.File && (e.Op == changes.Add || e.Op == changes.Change) {
			r, err := c.Open(e)
			return r, e, err
		}
	}
	return nil, nil, sandbox.Errorf(sandbox.ErrNotFound, "change set "+c.Set.ID, "it has no file with content at %s", sandbox.Quoted(sandbox.Clip(path, 256)))
}
