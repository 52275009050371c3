// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// aQueue has one slot on a host that is busy while busy says so.
func aQueue() (q *queue, busy *atomic.Bool) {
	busy = new(atomic.Bool)
	busy.Store(true)
	q = newQueue()
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
