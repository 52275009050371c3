// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/internal/envd"
)

const (
	// maxWatchers bounds the watches that wait to be asked, and maxKept the
	// changes that one keeps until then.
	maxWatchers = 64
	maxKept     = 16 << 10
)

// beginWatch begins the watch that a request asks for.
func (a *Agent) beginWatch(r *http.Request, q *envd.WatchRequest) (*watch, error) {
	u, err := a.user(r)
	if err != nil {
		return nil, err
	}
	q.Path = cmp.Or(q.Path, "~")
	return a.newWatch(u, q)
}

// serveWatchDir tells what changes for as long as there is a listener.
func (a *Agent) serveWatchDir(w http.ResponseWriter, r *http.Request) {
	out := newEnvelopeWriter(w)
	var q envd.WatchRequest
	if err := readEnvelope(r.Body, &q); err != nil {
		out.end(&connectError{codeInvalid, err.Error()})
		return
	}
	watch, err := a.beginWatch(r, &q)
	if err != nil {
		out.end(asConnect(err))
		return
	}
	out.message(envd.WatchEvent{Start: &struct{}{}})
	ended := make(chan error, 1)
	go func() {
		ended <- watch.run(func(c *envd.Change) error { return out.message(envd.WatchEvent{Filesystem: c}) })
	}()
	every := keepalive(r)
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	for {
		select {
		case err := <-ended:
			watch.close()
			out.end(asConnect(err))
			return
		case <-r.Context().Done():
			watch.close()
			<-ended
			return
		case <-quiet.C:
			next := every - out.idle()
			if next <= 0 {
				out.message(envd.WatchEvent{Keepalive: &struct{}{}})
				next = every
			}
			quiet.Reset(next)
		}
	}
}

// watcher is a watch that keeps its changes until they are asked for.
type watcher struct {
	watch *watch
	ended chan struct{}

	mu      sync.Mutex
	changes []*envd.Change
	err     error
}

// watchers are those of the agent, by their ids.
type watchers struct {
	mu  sync.Mutex
	all map[string]*watcher
}

func (a *Agent) serveCreateWatcher(r *http.Request, q *envd.WatchRequest) (*envd.WatcherAnswer, error) {
	a.watchers.mu.Lock()
	defer a.watchers.mu.Unlock()
	if len(a.watchers.all) >= maxWatchers {
		return nil, &connectError{codeExhausted, fmt.Sprintf("there are %d watchers already", maxWatchers)}
	}
	watch, err := a.beginWatch(r, q)
	if err != nil {
		return nil, err
	}
	w := &watcher{watch: watch, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		err := watch.run(w.keep)
		watch.close()
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}()
	if a.watchers.all == nil {
		a.watchers.all = map[string]*watcher{}
	}
	id := "w" + strings.ToLower(rand.Text())
	a.watchers.all[id] = w
	return &envd.WatcherAnswer{WatcherID: id}, nil
}

// keep keeps a change.
func (w *watcher) keep(c *envd.Change) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.changes) >= maxKept {
		w.changes = nil
		return &connectError{codeExhausted, fmt.Sprintf("watcher error: the client did not ask for more than %d events", maxKept)}
	}
	w.changes = append(w.changes, c)
	return nil
}

func (a *Agent) watcher(id string) (*watcher, error) {
	a.watchers.mu.Lock()
	defer a.watchers.mu.Unlock()
	w := a.watchers.all[id]
	if w == nil {
		return nil, &connectError{codeNotFound, fmt.Sprintf("watcher with id %s not found", id)}
	}
	return w, nil
}

// maxAtOnce is how many changes one answer has: with their entries they fit in
// what the host reads. The next answer has the next ones.
const maxAtOnce = 2048

func (a *Agent) serveGetWatcherEvents(_ *http.Request, q *envd.WatcherRequest) (*envd.WatcherEvents, error) {
	w, err := a.watcher(q.WatcherID)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.changes), maxAtOnce)
	if n == 0 && w.err != nil {
		return nil, w.err
	}
	events := append([]*envd.Change{}, w.changes[:n]...)
	w.changes = append([]*envd.Change(nil), w.changes[n:]...)
	return &envd.WatcherEvents{Events: events}, nil
}

func (a *Agent) serveRemoveWatcher(_ *http.Request, q *envd.WatcherRequest) (*struct{}, error) {
	w, err := a.watcher(q.WatcherID)
	if err != nil {
		return nil, err
	}
	a.watchers.mu.Lock()
	delete(a.watchers.all, q.WatcherID)
	a.watchers.mu.Unlock()
	w.watch.close()
	<-w.ended
	return &struct{}{}, nil
}
