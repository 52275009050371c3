// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// queue has what is to start wait while this host has no processor to spare: programs of one
// call until their end, sandboxes until their agent answers. Some are let in whatever the host
// does, others one after the other while it has time. Keys take turns, so that the burst of
// one does not keep another waiting.
type queue struct {
	slots int
	busy  func() bool // whether more programs want a processor than there are

	mu      sync.Mutex
	running int
	waiting int
	of      map[string][]*turn // by their key, the first who came first
	order   []string           // keys with something that waits; the next one first
	extra   time.Time          // when one was last let in beyond slots
	ticks   bool               // something looks whether the host has time again
}

// turn is one that waits.
type turn struct{ come chan struct{} }

const (
	// slotsPerProcessor are let in at once for each processor.
	slotsPerProcessor = 4
	// maxQueued wait at most, of one key a quarter of that.
	maxQueued = 1024
	// queueWait is how long one waits at most.
	queueWait = 5 * time.Minute
	// lookAgain is how long one that was let in beyond slots takes to show in what the host
	// has to do.
	lookAgain = 50 * time.Millisecond
)

const ruleQueue = "built-in: queue"

func newQueue() *queue {
	return &queue{slots: slotsPerProcessor * runtime.GOMAXPROCS(0), busy: hostBusy, of: map[string][]*turn{}}
}

// enter waits until something of a key may start; it has started, or ended, when leave is called.
// ErrExhausted means that too many wait, and ErrUnavailable that it did not come to its turn.
func (q *queue) enter(ctx context.Context, owner string) (leave func(), _ error) {
	q.mu.Lock()
	if q.waiting == 0 && q.admits() {
		q.running++
		q.mu.Unlock()
		return sync.OnceFunc(q.left), nil
	}
	if q.waiting >= maxQueued || len(q.of[owner]) >= maxQueued/4 {
		defer q.mu.Unlock()
		return nil, &sandbox.Error{Op: "queue", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("this host is busy, and %d of the key wait already", len(q.of[owner])), Hint: "ask again in a moment", Rule: ruleQueue}
	}
	t := &turn{make(chan struct{})}
	if len(q.of[owner]) == 0 {
		q.order = append(q.order, owner)
	}
	q.of[owner] = append(q.of[owner], t)
	q.waiting++
	q.look()
	q.mu.Unlock()
	late := time.NewTimer(queueWait)
	defer late.Stop()
	var why error
	select {
	case <-t.come:
		return sync.OnceFunc(q.left), nil
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-late.C:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.giveUp(owner, t) { // it came just now
		q.running--
		q.next()
	}
	return nil, &sandbox.Error{Op: "queue", Kind: sandbox.ErrUnavailable, Problem: "this host is busy, and it did not come to its turn", Hint: "try again later", Cause: why}
}

// admits says whether one more may start. The caller holds mu.
func (q *queue) admits() bool {
	if q.running < q.slots {
		return true
	}
	now := time.Now()
	if now.Sub(q.extra) < lookAgain || q.busy() {
		return false
	}
	q.extra = now
	return true
}

// left gives a place back.
func (q *queue) left() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	q.next()
}

// next lets in whom there is a place for. The caller holds mu.
func (q *queue) next() {
	for q.waiting > 0 && q.admits() {
		owner := q.order[0]
		t := q.of[owner][0]
		q.drop(owner, 0)
		if len(q.of[owner]) > 0 { // the others' turn comes first
			q.order = append(q.order[1:], owner)
		}
		q.running++
		close(t.come)
	}
}

// giveUp takes one out of the queue; false when its turn has come. The caller holds mu.
func (q *queue) giveUp(owner string, t *turn) bool {
	i := slices.Index(q.of[owner], t)
	if i < 0 {
		return false
	}
	q.drop(owner, i)
	return true
}

// drop takes out one of those that wait. The caller holds mu.
func (q *queue) drop(owner string, i int) {
	q.waiting--
	if q.of[owner] = slices.Delete(q.of[owner], i, i+1); len(q.of[owner]) == 0 {
		delete(q.of, owner)
		q.order = slices.DeleteFunc(q.order, func(o string) bool { return o == owner })
	}
}

// look has something look, while any waits, whether the host has time. The caller holds mu.
func (q *queue) look() {
	if q.ticks {
		return
	}
	q.ticks = true
	time.AfterFunc(lookAgain, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ticks = false
		if q.next(); q.waiting > 0 {
			q.look()
		}
	})
}

// hostBusy says whether more threads want to run than there are processors; where that is not
// known it says no.
func hostBusy() bool {
	b, err := os.ReadFile("/proc/loadavg") // see proc_loadavg(5)
	if err != nil {
		return false
	}
	f := strings.Fields(string(b))
	if len(f) < 4 {
		return false
	}
	runnable, _, _ := strings.Cut(f[3], "/")
	n, err := strconv.Atoi(runnable)
	return err == nil && n-1 > runtime.NumCPU() // it counts the reader
}
