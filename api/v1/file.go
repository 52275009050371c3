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

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
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

func fileView(e sandbox.FileInfo) File {
	kind := map[sandbox.FileKind]string{sandbox.RegularFile: "file", sandbox.Directory: "directory"}[e.Kind]
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

// filesOf are the files of a sandbox, with the rights of its own user.
func (s *Server) filesOf(k *persistent.Key, id string) *persistent.Files {
	return s.o.Sandboxes.Handle(k, id).Files("api", "")
}

// fileAnswerOf answers with what there is now.
func fileAnswerOf(e sandbox.FileInfo, err error) (*fileAnswer, error) {
	return &fileAnswer{Body: fileView(e)}, err
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
	register(s, op, func(ctx context.Context, k *persistent.Key, in *FilePath) (*struct{}, error) {
		return nil, s.filesOf(k, in.ID).Remove(ctx, in.Path)
	})
	op = operation("GET", "/sandboxes/{id}/files/info", "statFile", "Describe a file or directory", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *FilePath) (*fileAnswer, error) {
		return fileAnswerOf(s.filesOf(k, in.ID).Stat(ctx, in.Path))
	})
	op = operation("GET", "/sandboxes/{id}/files/list", "listFiles", "List a directory", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		FilePath
		Depth int `query:"depth" minimum:"1" maximum:"64" doc:"How many levels below it; 1 is the directory alone"`
	}) (*filesAnswer, error) {
		a := &filesAnswer{}
		a.Body.Files = []File{}
		all, err := s.filesOf(k, in.ID).List(ctx, in.Path, in.Depth)
		for _, e := range all {
			a.Body.Files = append(a.Body.Files, fileView(e))
		}
		return a, err
	})
	op = operation("POST", "/sandboxes/{id}/files/directory", "makeDirectory", "Make a directory and those above it", http.StatusCreated)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *FilePath) (*fileAnswer, error) {
		return fileAnswerOf(s.filesOf(k, in.ID).MakeDir(ctx, in.Path))
	})
	op = operation("POST", "/sandboxes/{id}/files/move", "moveFile", "Rename a file or directory, and make the directories above its new place", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		FilePath
		To string `query:"to" required:"true" minLength:"1" maxLength:"4096"`
	}) (*fileAnswer, error) {
		return fileAnswerOf(s.filesOf(k, in.ID).Move(ctx, in.Path, in.To))
	})
}

func (s *Server) readFile(ctx context.Context, k *persistent.Key, in *FilePath) (*streamed, error) {
	d, err := s.filesOf(k, in.ID).Read(ctx, in.Path, callOf(ctx).header)
	if err != nil {
		return nil, err
	}
	return &streamed{func(ctx huma.Context) {
		defer d.Close() // for a panic
		_, w := humago.Unwrap(ctx)
		maps.Copy(w.Header(), d.Header)
		// Whatever it is, it is not shown as a page here.
		w.Header().Set("Content-Disposition", "attachment")
		w.WriteHeader(d.Status)
		_, err := io.Copy(w, d)
		d.CloseWithError(err)
		if err != nil {
			panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
		}
	}}, nil
}

func (s *Server) writeFile(ctx context.Context, k *persistent.Key, in *struct {
	FilePath
	Mode   string `query:"mode" pattern:"^[0-7]{3,4}$" doc:"Its permissions as octal digits; 644, or what it had, when it is left out"`
	Atomic bool   `query:"atomic" doc:"Put it in place only when it is whole, as a new file"`
}) (*fileAnswer, error) {
	mode, _ := strconv.ParseUint(in.Mode, 8, 12) // the pattern says that it is one
	c := callOf(ctx)
	defer c.control.SetReadDeadline(time.Time{})
	files := s.filesOf(k, in.ID)
	_, err := files.Write(ctx, in.Path, api.TransferReader{Reader: c.body, Control: c.control}, sandbox.WriteOptions{Mode: fs.FileMode(mode).Perm(), Atomic: in.Atomic})
	if err != nil {
		return nil, err
	}
	return fileAnswerOf(files.Stat(ctx, in.Path))
}
