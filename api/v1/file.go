// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caisson-run/caisson/api/bounds"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Files go to and from the agent inside as streams. Paths are the sandbox's: the
// agent resolves them, with the rights of the sandbox's user, and no name of the
// host comes of any.

// File is a file or directory in a sandbox.
type File struct {
	Name     string    `json:"name"`
	Path     string    `json:"path"`
	Kind     string    `json:"kind" enum:"file,directory,other" doc:"What it is, or what a link leads to"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode" doc:"Permissions as octal digits"`
	Modified time.Time `json:"modified"`
	Owner    string    `json:"owner,omitempty"`
	Group    string    `json:"group,omitempty"`
	Target   string    `json:"target,omitempty" doc:"Where a symbolic link leads"`
}

func fileView(e guest.Entry) File {
	kind := map[guest.Kind]string{guest.RegularFile: "file", guest.Directory: "directory"}[e.Kind]
	if kind == "" {
		kind = "other"
	}
	return File{
		Name: e.Name, Path: e.Path, Kind: kind, Size: e.Size, Mode: strconv.FormatUint(uint64(e.Mode.Perm()), 8),
		Modified: e.ModTime.UTC(), Owner: e.Owner, Group: e.Group, Target: e.Target,
	}
}

// FilePath is the part of a request that names a file.
type FilePath struct {
	SandboxID
	Path string `query:"path" required:"true" minLength:"1" maxLength:"4096" doc:"In the sandbox; what is relative begins at its user's home"`
}

type fileAnswer struct{ Body File }

type filesAnswer struct {
	Body struct {
		Files []File `json:"files"`
	}
}

// agent hands what it does a sandbox's agent.
func (s *Server) agent(ctx context.Context, k *session.Key, id string, do func(*guest.Client) error) error {
	in, leave, err := s.o.Sandboxes.Agent(ctx, k, id)
	if err != nil {
		return err
	}
	defer leave()
	return do(in.Agent)
}

// files registers what moves and shows files.
func (s *Server) files() {
	op := operation("GET", "/sandboxes/{id}/files", "readFile", "Read a file", http.StatusOK)
	file := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	op.Responses = map[string]*huma.Response{"200": {Description: "The file", Content: file}, "206": {Description: "The part that Range names", Content: file}}
	register(s, op, s.readFile)
	op = operation("PUT", "/sandboxes/{id}/files", "writeFile", "Write a file, and the directories above it", http.StatusOK)
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}}
	register(s, op, s.writeFile)
	op = operation("DELETE", "/sandboxes/{id}/files", "removeFile", "Remove a file, or a directory with all that is in it", http.StatusNoContent)
	register(s, op, func(ctx context.Context, k *session.Key, in *FilePath) (*struct{}, error) {
		return nil, s.touch(ctx, k, in.ID, policy.RemoveFile, []string{in.Path}, func(a *guest.Client, paths []string) ([]sandbox.File, error) {
			return nil, a.Remove(ctx, paths[0])
		})
	})
	op = operation("GET", "/sandboxes/{id}/files/info", "statFile", "Describe a file or directory", http.StatusOK)
	register(s, op, func(ctx context.Context, k *session.Key, in *FilePath) (*fileAnswer, error) {
		return s.entry(ctx, k, in.ID, func(a *guest.Client) (guest.Entry, error) { return a.Stat(ctx, in.Path) })
	})
	op = operation("GET", "/sandboxes/{id}/files/list", "listFiles", "List a directory", http.StatusOK)
	register(s, op, func(ctx context.Context, k *session.Key, in *struct {
		FilePath
		Depth int `query:"depth" minimum:"1" maximum:"64" doc:"How many levels below it; 1 is the directory alone"`
	}) (*filesAnswer, error) {
		a := &filesAnswer{}
		a.Body.Files = []File{}
		return a, s.agent(ctx, k, in.ID, func(agent *guest.Client) error {
			all, err := agent.List(ctx, in.Path, in.Depth)
			for _, e := range all {
				a.Body.Files = append(a.Body.Files, fileView(e))
			}
			return err
		})
	})
	op = operation("POST", "/sandboxes/{id}/files/directory", "makeDirectory", "Make a directory and those above it", http.StatusCreated)
	register(s, op, func(ctx context.Context, k *session.Key, in *FilePath) (*fileAnswer, error) {
		return s.change(ctx, k, in.ID, policy.MakeDirectory, []string{in.Path}, func(a *guest.Client, paths []string) (guest.Entry, error) { return a.MakeDir(ctx, paths[0]) })
	})
	op = operation("POST", "/sandboxes/{id}/files/move", "moveFile", "Rename a file or directory, and make the directories above its new place", http.StatusOK)
	register(s, op, func(ctx context.Context, k *session.Key, in *struct {
		FilePath
		To string `query:"to" required:"true" minLength:"1" maxLength:"4096"`
	}) (*fileAnswer, error) {
		return s.change(ctx, k, in.ID, policy.MoveFile, []string{in.Path, in.To}, func(a *guest.Client, paths []string) (guest.Entry, error) {
			return a.MoveTo(ctx, paths[0], paths[1])
		})
	})
}

func (s *Server) entry(ctx context.Context, k *session.Key, id string, do func(*guest.Client) (guest.Entry, error)) (*fileAnswer, error) {
	a := &fileAnswer{}
	return a, s.agent(ctx, k, id, func(agent *guest.Client) error {
		e, err := do(agent)
		a.Body = fileView(e)
		return err
	})
}

// begin has a call about files decided and recorded.
func (s *Server) begin(ctx context.Context, k *session.Key, id string, kind policy.Kind, paths []string) (*session.FileAction, error) {
	return s.o.Sandboxes.BeginFiles(ctx, k, id, session.FileCall{Door: "api", Kind: kind, Paths: paths})
}

// touch has do carry out such a call, by the paths that were decided.
func (s *Server) touch(ctx context.Context, k *session.Key, id string, kind policy.Kind, paths []string, do func(*guest.Client, []string) ([]sandbox.File, error)) error {
	a, err := s.begin(ctx, k, id, kind, paths)
	if err != nil {
		return err
	}
	files, err := do(a.Agent, a.Paths)
	if jerr := a.End(ctx, files, err); err == nil {
		err = jerr
	}
	return err
}

// change is one that answers with what there is now.
func (s *Server) change(ctx context.Context, k *session.Key, id string, kind policy.Kind, paths []string, do func(*guest.Client, []string) (guest.Entry, error)) (*fileAnswer, error) {
	a := &fileAnswer{}
	return a, s.touch(ctx, k, id, kind, paths, func(agent *guest.Client, paths []string) ([]sandbox.File, error) {
		e, err := do(agent, paths)
		a.Body = fileView(e)
		return nil, err
	})
}

func (s *Server) readFile(ctx context.Context, k *session.Key, in *FilePath) (*streamed, error) {
	a, err := s.begin(ctx, k, in.ID, policy.ReadFile, []string{in.Path})
	if err != nil {
		return nil, err
	}
	d, err := a.Agent.Download(ctx, a.Paths[0], callOf(ctx).header)
	if err != nil {
		a.End(ctx, nil, err)
		return nil, err
	}
	t := session.NewTally()
	return &streamed{func(ctx huma.Context) {
		var err error
		defer func() {
			a.End(ctx.Context(), []sandbox.File{t.File(a.Paths[0], d.Status != http.StatusOK || d.Header.Get("Content-Encoding") != "")}, err)
		}()
		defer d.Body.Close()
		_, w := humago.Unwrap(ctx)
		maps.Copy(w.Header(), d.Header)
		// Whatever it is, it is not shown as a page here.
		w.Header().Set("Content-Disposition", "attachment")
		w.WriteHeader(d.Status)
		if _, err = io.Copy(w, io.TeeReader(d.Body, t)); err != nil {
			panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
		}
	}}, nil
}

func (s *Server) writeFile(ctx context.Context, k *session.Key, in *struct {
	FilePath
	Mode   string `query:"mode" pattern:"^[0-7]{3,4}$" doc:"Its permissions as octal digits; 644, or what it had, when it is left out"`
	Atomic bool   `query:"atomic" doc:"Put it in place only when it is whole, as a new file"`
}) (*fileAnswer, error) {
	mode, _ := strconv.ParseUint(in.Mode, 8, 12) // the pattern says that it is one
	c := callOf(ctx)
	defer c.control.SetReadDeadline(time.Time{})
	a := &fileAnswer{}
	return a, s.touch(ctx, k, in.ID, policy.WriteFile, []string{in.Path}, func(agent *guest.Client, paths []string) ([]sandbox.File, error) {
		t := session.NewTally()
		from := io.TeeReader(bounds.Reader{Reader: c.body, Control: c.control}, t)
		err := agent.WriteFile(ctx, paths[0], from, guest.WriteOptions{Mode: fs.FileMode(mode).Perm(), Atomic: in.Atomic})
		if err == nil {
			var e guest.Entry
			e, err = agent.Stat(ctx, paths[0])
			a.Body = fileView(e)
		}
		return []sandbox.File{t.File(paths[0], false)}, err
	})
}
