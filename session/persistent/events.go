// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"sync"
	"time"

	"github.com/caisson-run/caisson/session/registry"
)

// Event is something that happened to a sandbox.
type Event struct {
	Seq      int64     `json:"seq"` // grows by 1; of this process and one key alone
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"` // created, adopted, paused, resumed, ended, …
	Sandbox  string    `json:"sandbox"`
	Template string    `json:"template,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// maxEvents is how many events are kept of each key.
const maxEvents = 4096

// events are the last events of each key. None has to do with another's: neither
// what is kept nor the numbers say anything of what other keys do.
type events struct {
	clock Clock

	mu sync.Mutex
	of map[string]*ring // by the key's ID
}

// ring keeps the last events of one key.
type ring struct {
	seq   int64
	kept  []Event
	fresh chan struct{} // closed with the next event; nil while no caller waits
}

// ring is owner's. The caller holds mu.
func (e *events) ring(owner string) *ring {
	if e.of[owner] == nil {
		if e.of == nil {
			e.of = map[string]*ring{}
		}
		e.of[owner] = &ring{}
	}
	return e.of[owner]
}

// tell adds an event.
func (e *events) tell(s *registry.Sandbox, kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.ring(s.Owner)
	r.seq++
	one := Event{Seq: r.seq, At: e.clock.Now(), Kind: kind, Sandbox: s.ID, Template: s.Template, Reason: s.Reason}
	if len(r.kept) < maxEvents {
		r.kept = append(r.kept, one)
	} else {
		r.kept[(r.seq-1)%maxEvents] = one
	}
	if r.fresh != nil {
		close(r.fresh)
		r.fresh = nil
	}
}

// Events returns what happened to a key's sandboxes after the event with the
// number since, oldest first, as far as it is kept, and a channel that is closed
// with the next.
func (b *Sandboxes) Events(k *Key, since int64) ([]Event, <-chan struct{}) {
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	r := b.events.ring(k.ID)
	if r.fresh == nil {
		r.fresh = make(chan struct{})
	}
	var out []Event
	for seq := max(since+1, r.seq-int64(len(r.kept))+1); seq <= r.seq; seq++ {
		out = append(out, r.kept[(seq-1)%maxEvents])
	}
	return out, r.fresh
}
