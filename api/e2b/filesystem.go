// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// envd's filesystem.Filesystem. Paths are those of the user whom a request names, and
// links in them the agent's to follow, inside; no host path comes of any.

func (s *Server) serveStat(r *http.Request, in *inside, q *wire.PathRequest) (any, error) {
	agent, p, err := in.look(q.Path)
	if err != nil {
		return nil, err
	}
	e, err := agent.Stat(r.Context(), p)
	return wire.EntryAnswer{Entry: entry(e)}, err
}

func (s *Server) serveMakeDir(r *http.Request, in *inside, q *wire.PathRequest) (any, error) {
	return s.change(r, in, policy.MakeDirectory, []string{q.Path}, func(agent *guest.Client, paths []string) (guest.Entry, error) {
		return agent.MakeDir(r.Context(), paths[0])
	})
}

func (s *Server) serveMove(r *http.Request, in *inside, q *wire.MoveRequest) (any, error) {
	return s.change(r, in, policy.MoveFile, []string{q.Source, q.Destination}, func(agent *guest.Client, paths []string) (guest.Entry, error) {
		return agent.MoveTo(r.Context(), paths[0], paths[1])
	})
}

func (s *Server) serveListDir(r *http.Request, in *inside, q *wire.ListRequest) (any, error) {
	agent, p, err := in.look(cmp.Or(q.Path, "~"))
	if err != nil {
		return nil, err
	}
	all, err := agent.List(r.Context(), p, int(q.Depth))
	l := wire.ListAnswer{Entries: []*wire.Entry{}}
	for _, e := range all {
		l.Entries = append(l.Entries, entry(e))
	}
	return l, err
}

func (s *Server) serveRemove(r *http.Request, in *inside, q *wire.PathRequest) (any, error) {
	return struct{}{}, s.touch(r.Context(), in, policy.RemoveFile, []string{q.Path}, func(agent *guest.Client, paths []string) ([]sandbox.File, error) {
		return nil, agent.Remove(r.Context(), paths[0])
	})
}

// change is a call about files that answers with what there is now.
func (s *Server) change(r *http.Request, in *inside, kind policy.Kind, paths []string, do func(agent *guest.Client, paths []string) (guest.Entry, error)) (any, error) {
	var e guest.Entry
	err := s.touch(r.Context(), in, kind, paths, func(agent *guest.Client, paths []string) (_ []sandbox.File, err error) {
		e, err = do(agent, paths)
		return nil, err
	})
	return wire.EntryAnswer{Entry: entry(e)}, err
}

// entry is a file in envd's words.
func entry(e guest.Entry) *wire.Entry {
	kind := map[guest.Kind]string{guest.RegularFile: wire.TypeFile, guest.Directory: wire.TypeDirectory}[e.Kind]
	if kind == "" {
		kind = wire.TypeOther
	}
	return &wire.Entry{
		Name: e.Name, Type: kind, Path: e.Path, Size: e.Size, Mode: uint32(e.Mode.Perm()), Permissions: e.Permissions,
		Owner: e.Owner, Group: e.Group, ModifiedTime: e.ModTime.UTC().Format(time.RFC3339Nano), SymlinkTarget: e.Target, Metadata: e.Metadata,
	}
}
