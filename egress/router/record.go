// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/egress/wire"
)

// maxRefused bounds the sorts of refused attempts that are told of one sandbox.
const maxRefused = 512

// recorder tells each connection and each sort of refused attempt once.
type recorder struct {
	emit func(wire.Event)
	pace *rate.Limiter // of connections

	mu      sync.Mutex
	refused map[wire.Record]int64 // without Count
	totals  wire.Totals
	over    bool
}

func newRecorder(emit func(wire.Event)) *recorder {
	return &recorder{emit: emit, pace: rate.NewLimiter(rate.Every(wire.RecordEvery), wire.RecordsAtOnce)}
}

// refuse records an attempt that was refused.
func (r *recorder) refuse(rec wire.Record) {
	r.mu.Lock()
	r.totals.Refused++
	n, known := r.refused[rec]
	fresh := !known && len(r.refused) < maxRefused && !r.over
	switch {
	case known:
		r.refused[rec] = n + 1
	case fresh:
		if r.refused == nil {
			r.refused = map[wire.Record]int64{}
		}
		r.refused[rec] = 1
	default:
		r.totals.Unrecorded++
	}
	r.mu.Unlock()
	if fresh {
		r.emit(wire.Event{Kind: wire.Refused, Record: &rec})
	}
}

// connection records one that has ended.
func (r *recorder) connection(rec wire.Record) {
	r.mu.Lock()
	fresh := !r.over && r.pace.Allow()
	if !fresh {
		r.totals.Unrecorded++
	}
	r.mu.Unlock()
	if fresh {
		r.emit(wire.Event{Kind: wire.Connection, Record: &rec})
	}
}

// finish tells the totals and what was refused again and again.
func (r *recorder) finish(t wire.Totals) {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	r.over = true
	t.Refused, t.Unrecorded = r.totals.Refused, r.totals.Unrecorded
	var again []wire.Record
	for rec, n := range r.refused {
		if n > 1 {
			rec.Count = n
			again = append(again, rec)
		}
	}
	r.mu.Unlock()
	r.emit(wire.Event{Kind: wire.Done, Totals: &t, Repeats: again})
}
