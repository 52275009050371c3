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
// does, others one after the other while it has time. One that would not fit beside what was let
// in waits for that, too. Keys take turns, so that the burst of one does not keep another waiting.
type queue struct {
	slots int
	busy  func() bool // whether more programs want a processor than there are
	fit   *fit

	mu      sync.Mutex
	running int
	waiting int
	of      map[string][]*turn // by their key, the first who came first
	order   []string           // keys with something that waits; the next one first
	extra   time.Time          // when one was last let in beyond slots
	ticks   bool               // something looks whether the host has time again
}

// turn is one that waits.
type turn struct {
	come chan struct{}
	fits func() // once it has come; see fit.take
	err  error  // that it does not fit, and that there is nothing to wait for
}

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

func newQueue(f *fit) *queue {
	return &queue{fit: f, slots: slotsPerProcessor * runtime.GOMAXPROCS(0), busy: hostBusy, of: map[string][]*turn{}}
}

// enter waits until something of a key may start; it has started, or ended, when leave is called.
// ErrExhausted means that too many wait, and ErrUnavailable that it did not come to its turn, or
// that there is no room for it.
func (q *queue) enter(ctx context.Context, owner string) (leave func(), _ error) {
	q.mu.Lock()
	t := &turn{come: make(chan struct{})}
	if q.waiting == 0 && q.admits(t) {
		q.mu.Unlock()
		return q.entered(t)
	}
	if q.waiting >= maxQueued || len(q.of[owner]) >= maxQueued/4 {
		defer q.mu.Unlock()
		return nil, &sandbox.Error{Op: "queue", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("this host is busy, and %d of the key wait already", len(q.of[owner])), Hint: "ask again in a moment", Rule: ruleQueue}
	}
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
		return q.entered(t)
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-late.C:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.giveUp(owner, t) && t.err == nil { // it came just now
		q.leave(t)
	}
	return nil, &sandbox.Error{Op: "queue", Kind: sandbox.ErrUnavailable, Problem: "this host is busy, and it did not come to its turn", Hint: "try again later", Cause: why}
}

// entered is what the caller of enter gets, whose turn has come.
func (q *queue) entered(t *turn) (leave func(), _ error) {
	if t.err != nil {
		return nil, t.err
	}
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.leave(t)
	}), nil
}

// admits lets one in, or refuses it, where it has to wait for nothing. The caller holds mu.
func (q *queue) admits(t *turn) bool {
	now := time.Now()
	extra := q.running >= q.slots
	if extra && (now.Sub(q.extra) < lookAgain || q.busy()) {
		return false
	}
	if t.fits, t.err = q.fit.take(); t.err != nil {
		return q.running == 0
	}
	if extra {
		q.extra = now
	}
	q.running++
	return true
}

// leave gives a place back. The caller holds mu.
func (q *queue) leave(t *turn) {
	t.fits()
	q.running--
	q.next()
}

// next lets in whom there is a place for. The caller holds mu.
func (q *queue) next() {
	for q.waiting > 0 {
		owner := q.order[0]
		t := q.of[owner][0]
		if !q.admits(t) {
			return
		}
		q.drop(owner, 0)
		if len(q.of[owner]) > 0 { // the others' turn comes first
			q.order = append(q.order[1:], owner)
		}
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
