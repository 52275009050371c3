// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// closeAtOnce is how many sandboxes are ended at once.
const closeAtOnce = 16

// Close writes every running sandbox down, or ends it where that cannot be, and
// lets another process have them. Calls that are under way end with their
// sandboxes; none may follow. What has not ended soon after ctx is an error that names
// it, and is left as it is.
func (b *Sandboxes) Close(ctx context.Context) error {
	b.background.stop()
	left := b.inventory.list()
	var errs []error
	var mu sync.Mutex
	pending := make(map[string]bool)
	for _, l := range left {
		l.silence()
		pending[l.id] = true
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		each(left, closeAtOnce, func(l *managed) {
			err := l.shutDown(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			delete(pending, l.id)
		})
		_ = b.warmPool.Close() // what is left behind was told
		b.background.work.Wait()
	}()
	late := awaitEnds(ctx, ended, b.o.EndLimit/4)
	mu.Lock()
	defer mu.Unlock()
	if late {
		errs = append(errs, unended(slices.Sorted(maps.Keys(pending))))
	}
	errs = append(errs, b.writes.saveAll(context.WithoutCancel(ctx)))
	return errors.Join(append(errs, b.claim.Remove())...)
}

// awaitEnds waits for ended, and after ctx for limit. It says whether that was not
// enough.
func awaitEnds(ctx context.Context, ended <-chan struct{}, limit time.Duration) (late bool) {
	select {
	case <-ended:
		return false
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return false
	case <-time.After(limit):
		return true
	}
}

// unended is the error for what is left when Close waits no longer.
func unended(ids []string) error {
	what := "calls under way"
	if len(ids) > 0 {
		what = "sandboxes " + strings.Join(ids, ", ")
	}
	return sandbox.Unended("stop", what+" are left")
}

// shutDown ends l if it runs.
func (l *managed) shutDown(ctx context.Context) error {
	held, err := l.lock(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer held.unlock()
	if l.here() == nil {
		return nil // it never ran, or is kept on the disk
	}
	if held.stays() {
		return held.letGo(ctx)
	}
	if held.suspends() {
		err := held.suspend(ctx)
		if err == nil || l.state() == registry.Ended {
			return err
		}
	}
	return held.end(ctx, "caisson was stopped")
}

// suspends says whether a sandbox that runs outlives a caisson that is stopped.
func (l locked) suspends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in == nil || l.b.o.EndOnClose {
		return false
	}
	_, ok := l.in.box.(sandbox.Snapshotter)
	return ok && l.in.caps.Snapshot
}

// suspend writes a running sandbox down for the next caisson.
func (l locked) suspend(ctx context.Context) error {
	l.mu.Lock()
	l.rec.Waits = true
	l.mu.Unlock()
	if err := l.pause(ctx, registry.Pause, "caisson was stopped"); err != nil {
		l.mu.Lock()
		l.rec.Waits = false
		l.mu.Unlock()
		return err
	}
	return nil
}

// stays says whether Close lets go of a sandbox that runs.
func (l locked) stays() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.o.Leave && l.b.o.Grace > 0 && !l.b.o.EndOnClose && l.in != nil && l.in.survivor() != nil && l.rec.Life != nil
}

// letGo lets go of a sandbox that runs, and of what this process has of it. Its
// network is closed until the next owner takes it over.
func (l locked) letGo(ctx context.Context) error {
	l.mu.Lock()
	in := l.in
	l.mu.Unlock()
	l.leave(in, false)
	err := in.survivor().Leave()
	in.run.Dir.Release()
	// The sandbox and its directory are not this process's any more, so that
	// undoing what was made leaves them alone.
	return errors.Join(err, in.close(ctx))
}
