// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
)

// envd's filesystem.Filesystem. Paths are those of the user whom a request names, and
// links in them the agent's to follow, inside; no host path comes of any.

func (s *Server) serveStat(r *http.Request, in *inside, q *envd.PathRequest) (any, error) {
	e, err := in.files.Stat(r.Context(), q.Path)
	return envd.EntryAnswer{Entry: entry(e)}, err
}

func (s *Server) serveMakeDir(r *http.Request, in *inside, q *envd.PathRequest) (any, error) {
	e, err := in.files.MakeDir(r.Context(), q.Path)
	return envd.EntryAnswer{Entry: entry(e)}, err
}

func (s *Server) serveMove(r *http.Request, in *inside, q *envd.MoveRequest) (any, error) {
	e, err := in.files.Move(r.Context(), q.Source, q.Destination)
	return envd.EntryAnswer{Entry: entry(e)}, err
}

func (s *Server) serveListDir(r *http.Request, in *inside, q *envd.ListRequest) (any, error) {
	all, err := in.files.List(r.Context(), cmp.Or(q.Path, "~"), int(q.Depth))
	l := envd.ListAnswer{Entries: []*envd.Entry{}}
	for _, e := range all {
		l.Entries = append(l.Entries, entry(e))
	}
	return l, err
}

func (s *Server) serveRemove(r *http.Request, in *inside, q *envd.PathRequest) (any, error) {
	return struct{}{}, in.files.Remove(r.Context(), q.Path)
}

// entry is a file in envd's words.
func entry(e sandbox.FileInfo) *envd.Entry {
	kind := map[sandbox.FileKind]string{sandbox.RegularFile: envd.TypeFile, sandbox.Directory: envd.TypeDirectory}[e.Kind]
	if kind == "" {
		kind = envd.TypeOther
	}
	return &envd.Entry{
		Name: e.Name, Type: kind, Path: e.Path, Size: e.Size, Mode: uint32(e.Mode.Perm()), Permissions: e.Permissions,
		Owner: e.Owner, Group: e.Group, ModifiedTime: e.ModTime.UTC().Format(time.RFC3339Nano), SymlinkTarget: e.Target, Metadata: e.Metadata,
	}
}
