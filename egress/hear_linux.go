// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/egress/wire"
)

// Bounds of what is kept and told, whatever a router says; they are above its
// own. Beyond them it is counted.
const (
	keptConnections = 1000
	keptRefused     = 1000
	toldAtOnce      = wire.RecordsAtOnce + keptRefused
)

// follow reads what the router tells until it ends.
func (r *Router) follow() {
	defer close(r.over)
	for r.in.Scan() {
		var e wire.Event
		if err := json.Unmarshal(r.in.Bytes(), &e); err != nil {
			r.lost(fmt.Errorf("what it tells cannot be read: %w", err))
			return
		}
		if !r.hear(e) {
			return
		}
	}
	err := r.in.Err()
	if err == nil {
		err = errors.New("its process ended")
	}
	r.lost(err)
}

// hear takes one event; false is the end.
func (r *Router) hear(e wire.Event) bool {
	switch e.Kind {
	case wire.Ready:
		r.mu.Lock()
		r.stands = true
		r.mu.Unlock()
		if err := r.begin(); err != nil {
			r.lost(err)
			return false
		}
	case wire.Connection, wire.Refused:
		r.keep(e)
	case wire.Changed:
		select {
		case r.changed <- struct{}{}:
		default: // not asked for
		}
	case wire.Live:
		select {
		case r.live <- max(e.Live, 0):
		default: // not asked for
		}
	case wire.Stale:
		r.renew(e.Secret, e.Serial)
	case wire.Exceeded:
		if r.o.Ended != nil {
			r.o.Ended(e.Budget, nil)
		}
	case wire.Failed:
		r.lost(errors.New(e.Error))
		return false
	case wire.Done:
		r.finish(e)
		return false
	}
	return true
}

// begin has the router read packets, once, and unless it is being ended and there are
// none, or it was started ahead of them. One that is started by a packet is told so with
// its order.
func (r *Router) begin() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reads && !r.waits && (!r.closing || r.came) {
		r.reads = true
		err = r.write(wire.Command{Kind: wire.Begin})
	}
	if r.reads && r.stands { // who waits for it is told that packets are read
		r.once.Do(func() { close(r.ready) })
	}
	return err
}

// maxRenewals bounds the secrets that are renewed at once, whatever a router says.
const maxRenewals = 100

// renew has a secret renewed, beside all else. It is not broken off: what gives a new value
// may be worth nothing afterwards.
func (r *Router) renew(name string, serial int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.o.Renew == nil || r.closing || r.renewing[name] || len(r.renewing) >= maxRenewals {
		return
	}
	if r.renewing == nil {
		r.renewing = map[string]bool{}
	}
	r.renewing[name] = true
	r.renewals.Go(func() {
		n := r.o.Renew(name, serial)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.renewing, name)
		if r.reads {
			_ = r.write(wire.Command{Kind: wire.Renewed, Renewal: &n}) // one that is gone waits for nothing
		}
	})
}

func (r *Router) keep(e wire.Event) {
	if e.Record == nil {
		return
	}
	r.mu.Lock()
	list, maximum := &r.report.Refused, keptRefused
	if e.Kind == wire.Connection {
		list, maximum = &r.report.Connections, keptConnections
	}
	if len(*list) < maximum {
		*list = append(*list, *e.Record)
	} else {
		r.omitted++
	}
	tell := r.tell.Allow()
	if !tell {
		r.untold++
	}
	r.mu.Unlock()
	if tell && r.o.Record != nil {
		r.o.Record(e)
	}
}

// finish takes the router's last word.
func (r *Router) finish(e wire.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	if e.Totals != nil {
		r.report.Totals = *e.Totals
	}
	for _, again := range e.Repeats {
		n := again.Count
		again.Count = 0
		for i := range r.report.Refused {
			if r.report.Refused[i] == again {
				r.report.Refused[i].Count = n
			}
		}
	}
}

// lost takes note of a router that ended by itself.
func (r *Router) lost(err error) {
	r.mu.Lock()
	first := r.failed == nil && !r.closing
	if r.failed == nil {
		r.failed = err
	}
	r.mu.Unlock()
	if first && r.o.Ended != nil {
		r.o.Ended("", err)
	}
}
