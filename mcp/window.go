// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"sync"
	"time"

	"github.com/caisson-run/caisson/policy"
)

// window counts what happened within the time of a rate that slides along. It
// goes by the monotonic clock, so that setting the clock changes nothing.
type window struct {
	rate policy.CallRate
	now  func() time.Time

	mu   sync.Mutex
	past []time.Time // oldest first, at most rate.N
}

func newWindow(r policy.CallRate) *window {
	if r.N == 0 {
		return nil
	}
	return &window{rate: r, now: time.Now}
}

// take counts one more, or says how long it will be until one more may happen. A
// nil window bounds nothing.
func (w *window) take() (wait time.Duration, ok bool) {
	if w == nil {
		return 0, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	from := now.Add(-w.rate.Per)
	gone := 0
	for gone < len(w.past) && !w.past[gone].After(from) {
		gone++
	}
	w.past = append(w.past[:0], w.past[gone:]...)
	if int64(len(w.past)) >= w.rate.N {
		return w.past[0].Sub(from), false
	}
	w.past = append(w.past, now)
	return 0, true
}
