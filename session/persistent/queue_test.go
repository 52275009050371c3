// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// aQueue has one slot on a host that is busy while busy says so.
func aQueue() (q *queue, busy *atomic.Bool) {
	busy = new(atomic.Bool)
	busy.Store(true)
	q = newQueue(&fit{})
	q.slots, q.busy = 1, busy.Load
	return q, busy
}

// waits has one of a key wait, and returns when it does.
func (q *queue) waits(t *testing.T, owner string, came chan<- string) {
	t.Helper()
	entering := make(chan struct{})
	ctx := &noticed{Context: t.Context(), seen: func() {
		select {
		case <-entering:
		default:
			close(entering)
		}
	}}
	go func() {
		leave, err := q.enter(ctx, owner)
		if err != nil {
			t.Error(err)
			return
		}
		came <- owner
		leave()
	}()
	<-entering
}

// Keys take turns, whatever each has waiting.
func TestQueueIsFair(t *testing.T) {
	q, _ := aQueue()
	leave, err := q.enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan string, 10)
	for _, owner := range []string{"a", "a", "a", "b", "c"} {
		q.waits(t, owner, came)
	}
	leave()
	got := ""
	for range 5 {
		got += <-came
	}
	if got != "abcaa" {
		t.Errorf("their turns are %s", got)
	}
}

// A host that has time lets more in than it has slots; and the queue is bounded.
func TestQueueIsBounded(t *testing.T) {
	q, busy := aQueue()
	leave, err := q.enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan string, maxQueued)
	for range maxQueued / 4 {
		q.waits(t, "a", came)
	}
	if _, err := q.enter(t.Context(), "a"); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("one too many: %v", err)
	}
	gone, left := context.WithCancel(t.Context())
	left()
	if _, err := q.enter(gone, "b"); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("one that does not wait: %v", err)
	}
	q.mu.Lock()
	if n := len(q.of); n != 1 || q.waiting != maxQueued/4 {
		t.Errorf("%d wait, of %d keys", q.waiting, n)
	}
	q.mu.Unlock()
	busy.Store(false)
	<-came // although the one that holds the slot is there
	leave()
	for range maxQueued/4 - 1 {
		<-came
	}
}

// One that does not fit waits for what was let in, and is refused where that would be in vain.
func TestQueueWaitsForRoom(t *testing.T) {
	q, busy := aQueue()
	busy.Store(false)
	room := new(atomic.Int64)
	room.Store(1)
	q.slots = 10
	q.fit.left = func() cgroup.Left { return cgroup.Left{Tasks: room.Load()*idleTasks + 1, TasksMax: 16} }
	leave, err := q.enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan string, 2)
	q.waits(t, "b", came)
	q.waits(t, "c", came)
	q.mu.Lock()
	if q.running != 1 || q.waiting != 2 {
		t.Errorf("%d run and %d wait where there is room for one", q.running, q.waiting)
	}
	q.mu.Unlock()
	leave()
	if got := <-came + <-came; got != "bc" {
		t.Errorf("then %s came", got)
	}
	room.Store(0)
	if _, err := q.enter(t.Context(), "a"); !errors.Is(err, sandbox.ErrUnavailable) || !isNoRoom(err) {
		t.Errorf("there is no room, and nothing that will leave: %v", err)
	}
	if q.fit.starting != 0 || q.running != 0 {
		t.Errorf("%d are being started, %d run", q.fit.starting, q.running)
	}
}
