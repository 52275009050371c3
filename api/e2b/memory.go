// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"io"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

// mostMessages is how many bytes of messages the calls of one key may have here at
// once: four of the longest, or thousands of usual ones. Files are not among
// them, since they go through.
const mostMessages = 64 << 20

// memory counts what messages of each key are held.
type memory struct {
	mu   sync.Mutex
	used map[string]int64 // bytes, by a key's ID; no zeros
}

// take counts n bytes more, or fewer, of owner's; false is too many.
func (m *memory) take(owner string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.used[owner] + n
	switch {
	case n > 0 && now > mostMessages:
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

// message is a request's body that is held while its call is under way.
type message struct {
	io.ReadCloser
	memory *memory
	owner  string
	held   int64
}

// Read implements io.Reader. A body that there is no room for is ErrExhausted.
func (m *message) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		if !m.memory.take(m.owner, int64(n)) {
			return 0, &sandbox.Error{Op: "message", Kind: sandbox.ErrExhausted, Problem: "the messages of the key's calls that are under way are too long together",
				Hint: "make fewer at once, or write large things into files"}
		}
		m.held += int64(n)
	}
	return n, err
}

// done is the end of the call.
func (m *message) done() { m.memory.take(m.owner, -m.held) }
