// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"

	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
)

// Watches: one stream for as long as a client listens, or a watcher that it asks
// from time to time, as the synchronous Python client does.

// serveWatchDir streams what changes in a directory.
func (s *Server) serveWatchDir(w http.ResponseWriter, r *http.Request, in *inside) (*stream, error) {
	var q envd.WatchRequest
	timeout, err := readCall(w, r, &q)
	if err != nil {
		return nil, err
	}
	ctx, stop := lasting(r.Context(), timeout)
	defer stop()
	watch, err := in.files.Watch(ctx, q.Path, sandbox.WatchOptions{Recursive: q.Recursive, Entries: q.IncludeEntry})
	if err != nil {
		return nil, late(ctx, err)
	}
	defer watch.Close()
	out := newStream(w)
	out.message(envd.WatchEvent{Start: &struct{}{}})
	defer out.keepAlive(keepaliveEvery(r), envd.WatchEvent{Keepalive: &struct{}{}})()
	for {
		c, err := watch.Next()
		if err != nil {
			return out, late(ctx, err)
		}
		if err := out.message(envd.WatchEvent{Filesystem: changed(c)}); err != nil {
			return out, nil // without a listener
		}
	}
}

// changed is a change in envd's words.
func changed(c sandbox.FileChange) *envd.Change {
	w := &envd.Change{Name: c.Name, Type: string(c.Kind)}
	if c.File != nil {
		w.Entry = entry(*c.File)
	}
	return w
}

func (s *Server) serveCreateWatcher(r *http.Request, in *inside, q *envd.WatchRequest) (any, error) {
	id, err := in.files.CreateWatcher(r.Context(), q.Path, sandbox.WatchOptions{Recursive: q.Recursive, Entries: q.IncludeEntry})
	return envd.WatcherAnswer{WatcherID: id}, err
}

func (s *Server) serveWatcherEvents(r *http.Request, in *inside, q *envd.WatcherRequest) (any, error) {
	all, err := in.WatcherEvents(r.Context(), q.WatcherID)
	a := envd.WatcherEvents{Events: []*envd.Change{}}
	for _, c := range all {
		a.Events = append(a.Events, changed(c))
	}
	return a, err
}

func (s *Server) serveRemoveWatcher(r *http.Request, in *inside, q *envd.WatcherRequest) (any, error) {
	return struct{}{}, in.RemoveWatcher(r.Context(), q.WatcherID)
}
