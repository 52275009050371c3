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
		b.memories.close()
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
	l.mu.Lock()
	cold := l.cold()
	l.mu.Unlock()
	if cold != "" {
		if done, err := held.shutDownCold(ctx, cold); done || err != nil {
			return err
		}
	} else if l.here() == nil {
		return nil // it never ran, or is kept on the disk
	}
	l.mu.Lock()
	d := departure{l: held, in: l.in, rec: l.rec.Clone()}
	l.mu.Unlock()
	return d.run(ctx)
}

// shutDownCold leaves a sandbox on the disk that is there, or puts it there; else it goes on
// to be let go of, or ended, like others.
func (l locked) shutDownCold(ctx context.Context, cold registry.Coldness) (done bool, _ error) {
	o := &l.b.o
	switch in := l.here(); {
	case cold == registry.OnDisk && !o.EndOnClose:
		return true, nil
	case cold == registry.OnDisk:
		return true, l.end(ctx, "caisson was stopped")
	case o.EndOnClose:
		return true, l.end(ctx, "caisson was stopped")
	case in.writes() && !(o.Leave && o.Grace > 0):
		if err := l.writeAway(context.WithoutCancel(ctx)); err == nil {
			return true, nil
		}
	}
	return false, l.thaw(context.WithoutCancel(ctx))
}

// departure is what becomes of a sandbox when its caisson is stopped.
type departure struct {
	l   locked
	in  *running          // nil for one that stands still
	rec *registry.Sandbox // when it began
}

// run lets go of the sandbox, writes it down, or ends it: the first that can be.
func (d *departure) run(ctx context.Context) error {
	if d.stays() {
		return d.letGo(ctx)
	}
	if d.suspends() {
		err := d.suspend(ctx)
		if err == nil || d.l.state() == registry.Ended {
			return err
		}
	}
	return d.l.end(ctx, "caisson was stopped")
}

// stays says whether Close lets go of the sandbox.
func (d *departure) stays() bool {
	o := &d.l.b.o
	return o.Leave && o.Grace > 0 && !o.EndOnClose && d.in != nil && d.in.survivor() != nil && d.rec.Life != nil
}

// letGo lets go of the sandbox, and of what this process has of it. Its network is closed
// until the next owner takes it over.
func (d *departure) letGo(ctx context.Context) error {
	d.l.leave(d.in, false)
	err := d.in.survivor().Leave()
	d.in.run.Dir.Release()
	// The sandbox and its directory are not this process's any more, so that
	// undoing what was made leaves them alone.
	return errors.Join(err, d.in.close(ctx))
}

// suspends says whether the sandbox can be written down for the next caisson.
func (d *departure) suspends() bool {
	if d.in == nil || d.l.b.o.EndOnClose {
		return false
	}
	_, ok := d.in.box.(sandbox.Snapshotter)
	return ok && d.in.caps.Snapshot
}

// suspend writes the sandbox down for the next caisson.
func (d *departure) suspend(ctx context.Context) error {
	waits := func(yes bool) {
		d.l.mu.Lock()
		defer d.l.mu.Unlock()
		d.l.rec.Waits = yes
	}
	waits(true)
	err := d.l.pause(ctx, registry.Pause, "caisson was stopped")
	if err != nil {
		waits(false)
	}
	return err
}
