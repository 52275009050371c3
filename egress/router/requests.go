// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync"

	"github.com/caisson-run/caisson/egress/rule"
)

// requests counts those that entries with max_requests let through, for as long as the
// router lives: rules that come later go on with the count of the same entry.
type requests struct {
	mu    sync.Mutex
	taken map[string]int64 // by rule.Count.Key
}

// take counts one request, unless an entry has had all of its requests, which it gives
// back then. A request that one entry refuses is taken from none.
func (r *requests) take(counts []rule.Count) *rule.Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range counts {
		if c := &counts[i]; r.taken[c.Key] >= c.Max {
			return c
		}
	}
	for _, c := range counts {
		if r.taken == nil {
			r.taken = map[string]int64{}
		}
		r.taken[c.Key]++
	}
	return nil
}
