// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"io"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

// MaxMessages is how many bytes of messages the calls of one key may have here at
// once: four of the longest, or thousands of usual ones. Files are not among
// them, since they go through.
const MaxMessages = 64 << 20

const (
	// MaxCalls is how many calls of one key may be under way, streams included. The
	// server has a bound for all of them together; with this one no key uses it up
	// alone.
	MaxCalls = 1024
	// MaxVisits is how many requests may be under way of people who have no key:
	// to ports of one key's sandboxes, with signatures that it made, or of no key.
	MaxVisits = 512
)

// Memory counts the calls of each key and what messages of theirs are held. The
// zero value is ready.
type Memory struct {
	mu    sync.Mutex
	used  map[string]int64 // bytes, by a key's ID; no zeros
	calls map[string]int   // by a key's ID, and behind "to " visits; no zeros
}

// Take counts n bytes more, or fewer, of owner's; false is too many.
func (m *Memory) Take(owner string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.used[owner] + n
	switch {
	case n > 0 && now > MaxMessages:
		return false
	case now == 0:
		delete(m.used, owner)
	case m.used == nil:
		m.used = map[string]int64{owner: now}
	default:
		m.used[owner] = now
	}
	return true
}

// Held are messages of one call, which are held while it is under way: what its
// request says, and what its answer will.
type Held struct {
	memory *Memory
	owner  string // whose memory
	who    string // whose place

	mu   sync.Mutex
	n    int64
	done bool
}

// Hold begins to count a call of owner's. The caller calls Done at its end. It is
// ErrExhausted where as many are under way as may be.
func (m *Memory) Hold(owner string) (*Held, error) { return m.enter(owner, owner, MaxCalls) }

// Visit is Hold for who has no key and comes to something of owner's, or with an
// empty owner, to something that is everybody's. Visits take no place of the calls
// that owner itself makes.
func (m *Memory) Visit(owner string) (*Held, error) { return m.enter(owner, "to "+owner, MaxVisits) }

func (m *Memory) enter(owner, who string, maximum int) (*Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[who] >= maximum {
		return nil, &sandbox.Error{Op: "request", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("%d are under way already", maximum),
			Hint: "wait until one has ended", Rule: "built-in: requests"}
	}
	if m.calls == nil {
		m.calls = map[string]int{}
	}
	m.calls[who]++
	return &Held{memory: m, owner: owner, who: who}, nil
}

func (m *Memory) leave(who string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[who]--; m.calls[who] == 0 {
		delete(m.calls, who)
	}
}

// Add counts n bytes more. What there is no room for is ErrExhausted.
func (h *Held) Add(n int64) error {
	if !h.memory.Take(h.owner, n) {
		return &sandbox.Error{Op: "message", Kind: sandbox.ErrExhausted, Problem: "the messages of the key's calls that are under way are too long together",
			Hint: "make fewer at once, or write large things into files"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n += n
	return nil
}

// Done is the end of the call.
func (h *Held) Done() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.memory.Take(h.owner, -h.n)
	h.n = 0
	if !h.done {
		h.done = true
		h.memory.leave(h.who)
	}
}

// Body is a request's body, counted as it arrives.
func (h *Held) Body(body io.ReadCloser) io.ReadCloser { return &countedBody{body, h} }

type countedBody struct {
	io.ReadCloser
	held *Held
}

// Read implements io.Reader.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if n > 0 {
		if err := c.held.Add(int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}
