// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// Watch is a directory that is watched. One goroutine at a time calls Next. The caller must
// call Close; until then the sandbox is in use.
type Watch struct {
	watch *guest.Watch
	leave func()
}

// Watch begins to watch a directory for as long as ctx lasts. What happens after it has
// returned is seen.
func (f *Files) Watch(ctx context.Context, p string, o sandbox.WatchOptions) (*Watch, error) {
	l, _, shown, err := f.handle.enter(ctx)
	if err != nil {
		return nil, err
	}
	in, err := shown.as(f.user)
	if err != nil {
		l.unuse()
		return nil, err
	}
	w, err := in.agent.Watch(ctx, InHome(in.User.Home, p), o)
	if err != nil {
		l.unuse()
		return nil, err
	}
	return &Watch{watch: w, leave: l.unuse}, nil
}

// Next waits for the next change. The agent's reason to end the watch, such as too many
// changes at once, is a [*sandbox.AgentError].
func (w *Watch) Next() (sandbox.FileChange, error) { return w.watch.Next() }

// Close ends the watch. It is called once.
func (w *Watch) Close() error {
	defer w.leave()
	return w.watch.Close()
}

// CreateWatcher begins to watch a directory, until RemoveWatcher or the sandbox's end. Some
// 16 000 changes are kept until they are asked for. There are 64 such watchers at most.
func (f *Files) CreateWatcher(ctx context.Context, p string, o sandbox.WatchOptions) (id string, err error) {
	err = f.look(ctx, p, func(in *Inside, p string) (err error) {
		id, err = in.agent.CreateWatcher(ctx, p, o)
		return err
	})
	return id, err
}

// WatcherEvents returns what has changed since it was asked for the last time, some 2000
// changes at most: the next call has the next ones.
func (in *Inside) WatcherEvents(ctx context.Context, id string) ([]sandbox.FileChange, error) {
	return in.agent.WatcherEvents(ctx, id)
}

// RemoveWatcher ends a watcher.
func (in *Inside) RemoveWatcher(ctx context.Context, id string) error {
	return in.agent.RemoveWatcher(ctx, id)
}
