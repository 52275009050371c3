// SPDX-License-Identifier: Apache-2.0

// Package bounds has what every door over HTTP holds requests to: how much
// memory the messages of one key take, and how long a transfer may stand still.
package bounds

import (
	"io"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

// MostMessages is how many bytes of messages the calls of one key may have here at
// once: four of the longest, or thousands of usual ones. Files are not among
// them, since they go through.
const MostMessages = 64 << 20

// Memory counts what messages of each key are held. The zero value is ready.
type Memory struct {
	mu   sync.Mutex
	used map[string]int64 // bytes, by a key's ID; no zeros
}

// Take counts n bytes more, or fewer, of owner's; false is too many.
func (m *Memory) Take(owner string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.used[owner] + n
	switch {
	case n > 0 && now > MostMessages:
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
	owner  string

	mu sync.Mutex
	n  int64
}

// Hold begins to count a call of owner's. The caller calls Done at its end.
func (m *Memory) Hold(owner string) *Held { return &Held{memory: m, owner: owner} }

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
}

// Body is a request's body, counted as it arrives.
func (h *Held) Body(body io.ReadCloser) io.ReadCloser { return &counted{body, h} }

type counted struct {
	io.ReadCloser
	held *Held
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if n > 0 {
		if err := c.held.Add(int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}
