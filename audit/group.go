// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
)

// group has those who want to append at one time share a transaction, and with it
// the sync that makes it durable and the signature of the head: a sync takes as long
// for a hundred records as for one. No record waits for others. The first one is
// committed at once; what comes meanwhile is the next transaction, which one of the
// waiting goroutines carries out.
type group struct {
	mu      sync.Mutex
	busy    bool // a commit is under way
	waiting []*waiter
}

// waiter is one who wants to append.
type waiter struct {
	list []*addition
	ends bool          // it may spend the reserve
	done chan error    // has an element when it is committed, or failed
	lead chan struct{} // is closed when it is its turn to commit
}

// maxGrouped bounds how many calls one transaction carries.
const maxGrouped = 256

// commit appends records in one transaction, others' perhaps in the same one. When
// it returns without an error they are on disk.
//
// A ctx that ends takes back what is not being committed yet; what is, is waited
// for, since it may be on disk.
func (l *Log) commit(ctx context.Context, list ...*addition) error {
	return l.wait(ctx, &waiter{list: list})
}

// commitEnd is commit for records of an end, which may spend the reserve.
func (l *Log) commitEnd(ctx context.Context, list ...*addition) error {
	return l.wait(ctx, &waiter{list: list, ends: true})
}

// wait waits until w's records are committed.
func (l *Log) wait(ctx context.Context, w *waiter) error {
	w.done, w.lead = make(chan error, 1), make(chan struct{})
	g := &l.group
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if !g.busy {
		g.busy = true
		g.pass()
	}
	g.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-w.lead:
		l.carry(ctx, w)
		return <-w.done
	case <-ctx.Done():
	}
	g.mu.Lock()
	i := slices.Index(g.waiting, w)
	if i < 0 { // another one commits it
		g.mu.Unlock()
		return <-w.done
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	select {
	case <-w.lead: // its turn came at the same time, and is the next one's now
		g.pass()
	default:
	}
	g.mu.Unlock()
	return unavailable("audit", context.Cause(ctx))
}

// pass makes it the turn of the first who waits. The caller holds mu.
func (g *group) pass() {
	if g.busy = len(g.waiting) > 0; g.busy {
		close(g.waiting[0].lead)
	}
}

// take is what the next transaction carries; the first is who asks.
func (g *group) take() []*waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxGrouped)
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return batch
}

// carry commits what waits, w's among it, and passes the turn on.
func (l *Log) carry(ctx context.Context, w *waiter) {
	batch := l.group.take()
	defer func() {
		l.group.mu.Lock()
		defer l.group.mu.Unlock()
		l.group.pass()
	}()
	if len(batch) > 1 {
		ctx = context.WithoutCancel(ctx) // it is others' affair, too
	}
	err := l.write(ctx, batch)
	if l.reserve != nil && store.Full(err) {
		if batch = ends(batch, err); len(batch) > 0 {
			err = l.reserve.Spend(func() error { return l.write(ctx, batch) })
		}
	}
	for _, one := range batch {
		if len(batch) > 1 && errors.Is(err, sandbox.ErrConflict) {
			// One of them is at fault, and is to have the error alone.
			one.done <- l.write(ctx, []*waiter{one})
			continue
		}
		one.done <- err
	}
}

// ends are those of a batch that may spend the reserve; the others have the error.
func ends(batch []*waiter, err error) (list []*waiter) {
	for _, one := range batch {
		if one.ends {
			list = append(list, one)
		} else {
			one.done <- err
		}
	}
	return list
}

// write appends what a batch brings in one transaction.
func (l *Log) write(ctx context.Context, batch []*waiter) error {
	return l.change(ctx, func(tx querier, head Checkpoint) (Checkpoint, error) {
		var records []*record
		var kept [][]byte
		for _, w := range batch {
			for _, a := range w.list {
				records, kept = append(records, &a.record), append(kept, a.contents()...)
			}
		}
		head, err := l.appendAll(ctx, tx, head, records)
		if err != nil {
			return head, err
		}
		return head, keep(ctx, tx, kept)
	})
}
