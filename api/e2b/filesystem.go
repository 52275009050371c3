// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
)

// envd's filesystem.Filesystem. Paths are the agent's to resolve, inside; no
// host path comes of any.

func (s *Server) serveStat(r *http.Request, in *inside, q *wire.PathRequest) (any, error) {
	e, err := in.Stat(r.Context(), q.Path)
	return wire.EntryAnswer{Entry: entry(e)}, err
}

func (s *Server) serveMakeDir(r *http.Request, in *inside, q *wire.PathRequest) (any, error) {
	if err := in.Mkdir(r.Context(), q.Path); err != nil {
		return nil, err
	}
	return s.serveStat(r, in, q)
}

func (s *Server) serveMove(r *http.Request, in *inside, q *wire.MoveRequest) (any, error) {
	if err := in.Move(r.Context(), q.Source, q.Destination); err != nil {
		return nil, err
	}
	return s.serveStat(r, in, &wire.PathRequest{Path: q.Destination})
}

func (s *Server) serveListDir(r *http.Request, in *inside, q *wire.ListRequest) (any, error) {
	all, err := in.List(r.Context(), q.Path, int(q.Depth))
	l := wire.ListAnswer{Entries: []*wire.Entry{}}
	for _, e := range all {
		l.Entries = append(l.Entries, entry(e))
	}
	return l, err
}

func (s *Server) serveRemove(r *http.Request, in *inside, q *wire.PathRequest) (any, error) {
	return struct{}{}, in.Remove(r.Context(), q.Path)
}

// entry is a file in envd's words.
func entry(e guest.Entry) *wire.Entry {
	kind := wire.TypeFile
	if e.Dir {
		kind = wire.TypeDirectory
	}
	return &wire.Entry{
		Name: e.Name, Type: kind, Path: e.Path, Size: e.Size, Mode: uint32(e.Mode.Perm()), Permissions: e.Mode.String(),
		Owner: e.Owner, Group: e.Group, ModifiedTime: e.ModTime.UTC().Format(time.RFC3339Nano), SymlinkTarget: e.Target,
	}
}
