// SPDX-License-Identifier: Apache-2.0

package session

import (
	"sync"
	"time"

	"github.com/caisson-run/caisson/session/registry"
)

// Event is something that happened to a sandbox.
type Event struct {
	Seq      int64     `json:"seq"` // grows by 1; of this process alone
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"` // created, paused, resumed, ended, …
	Sandbox  string    `json:"sandbox"`
	Template string    `json:"template,omitempty"`
	Reason   string    `json:"reason,omitempty"`

	owner string
}

// mostEvents is how many events are kept.
const mostEvents = 4096

// ring keeps the last events.
type ring struct {
	mu    sync.Mutex
	seq   int64
	kept  []Event
	fresh chan struct{} // closed with the next event; nil while nobody waits
}

// tell adds an event.
func (b *Sandboxes) tell(s *registry.Sandbox, kind string) {
	r := &b.events
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	e := Event{Seq: r.seq, At: b.o.Clock.Now(), Kind: kind, Sandbox: s.ID, Template: s.Template, Reason: s.Reason, owner: s.Owner}
	if len(r.kept) < mostEvents {
		r.kept = append(r.kept, e)
	} else {
		r.kept[(r.seq-1)%mostEvents] = e
	}
	if r.fresh != nil {
		close(r.fresh)
		r.fresh = nil
	}
}

// Events returns what happened to a key's sandboxes after the event with the
// number since, oldest first, as far as it is kept, and a channel that is closed
// with the next event of anybody's.
func (b *Sandboxes) Events(k *Key, since int64) ([]Event, <-chan struct{}) {
	r := &b.events
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh == nil {
		r.fresh = make(chan struct{})
	}
	var out []Event
	for seq := max(since+1, r.seq-int64(len(r.kept))+1); seq <= r.seq; seq++ {
		if e := r.kept[(seq-1)%mostEvents]; e.owner == k.ID {
			out = append(out, e)
		}
	}
	return out, r.fresh
}
