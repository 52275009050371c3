// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// hold makes l's next commits wait, as behind one that is under way, until the
// answer is called, which returns when the turn is passed on.
func hold(l *Log) (release func()) {
	l.group.mu.Lock()
	l.group.busy = true
	l.group.mu.Unlock()
	return func() {
		l.group.mu.Lock()
		defer l.group.mu.Unlock()
		l.group.pass()
	}
}

// queued waits until n wait.
func queued(t *testing.T, l *Log, n int) {
	t.Helper()
	for have := -1; have != n; {
		if ctx.Err() != nil {
			t.Fatal("it never comes")
		}
		l.group.mu.Lock()
		have = len(l.group.waiting)
		l.group.mu.Unlock()
		runtime.Gosched()
	}
}

func added(t *testing.T, id string) *addition {
	t.Helper()
	in := intent(id)
	a, err := in.record(id)
	must(t, err)
	return a
}

// What comes during a commit shares the next transaction: its records are one
// after the other, each has its error alone, and one head is signed for all.
func TestCommitsAreGrouped(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	call(t, l, "taken")
	must(t, l.commit(ctx, added(t, "twice")))
	before, err := l.Checkpoint(ctx)
	must(t, err)
	release := hold(l)
	errs := make([]error, 10)
	var all sync.WaitGroup
	for i := range errs {
		a := added(t, fmt.Sprint("entry", i))
		if i == 4 {
			a = added(t, "twice") // an entry has one intent
		}
		all.Go(func() { errs[i] = l.commit(ctx, a) })
	}
	queued(t, l, len(errs))
	release()
	all.Wait()
	for i, err := range errs {
		if (i == 4) != errors.Is(err, sandbox.ErrConflict) || i != 4 && err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	after, err := l.Checkpoint(ctx)
	must(t, err)
	if after.Count != before.Count+9 {
		t.Errorf("%d records more, want 9", after.Count-before.Count)
	}
	wantOK(t, verify(t, dir, before, after))
}

// One transaction carries them.
func TestOneTransaction(t *testing.T) {
	l := open(t, t.TempDir())
	signed := 0
	l.onCommit = func() { signed++ }
	release := hold(l)
	var all sync.WaitGroup
	for i := range 100 {
		a := added(t, fmt.Sprint("entry", i))
		all.Go(func() { must(t, l.commit(ctx, a)) })
	}
	queued(t, l, 100)
	release()
	all.Wait()
	if signed != 1 {
		t.Errorf("%d transactions", signed)
	}
}

// A caller that gives up while waiting is not recorded, and stands in no other's
// way: neither when it waits behind others, nor when its turn has come.
func TestGivingUp(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	release := hold(l)
	gone, cancel := context.WithCancelCause(ctx)
	first, second, third := added(t, "first"), added(t, "second"), added(t, "third")
	errs := make([]error, 3)
	var all, quit sync.WaitGroup
	quit.Go(func() { errs[0] = l.commit(gone, first) })
	queued(t, l, 1)
	all.Go(func() { errs[1] = l.commit(ctx, second) })
	queued(t, l, 2)
	quit.Go(func() { errs[2] = l.commit(gone, third) })
	queued(t, l, 3)
	cancel(errors.New("given up"))
	quit.Wait()
	release()
	all.Wait()
	if errs[1] != nil || errs[0] == nil || errs[2] == nil {
		t.Error(errs)
	}
	for _, id := range []string{"first", "third"} {
		if _, err := l.Show(ctx, id); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := l.Show(ctx, "second"); err != nil {
		t.Error(err)
	}
	call(t, l, "later")
	wantOK(t, verify(t, dir))
}

// Many at once, some of whom give up: each that was told it is recorded is, and the
// chain is whole.
func TestCrowd(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	var all sync.WaitGroup
	for i := range 200 {
		a := added(t, fmt.Sprint("entry", i, "."))
		all.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if i%3 == 0 {
				go cancel()
			}
			err := l.commit(ctx, a)
			if _, there := l.Show(context.WithoutCancel(ctx), a.entry); err == nil && there != nil {
				t.Errorf("%s: %v", a.entry, there)
			}
			if err != nil && i%3 != 0 {
				t.Errorf("%s: %v", a.entry, err)
			}
		})
	}
	all.Wait()
	wantOK(t, verify(t, dir))
}
