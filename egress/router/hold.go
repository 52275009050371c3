// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// The bytes of an answer are held back so that a secret is whole before its first
// byte is given out. How many, and for how long, must not depend on the secret.
const (
	// holdBytes is how many of the last bytes are held back. The longest form of a
	// secret is shorter: rule.MaxSecret and maxOther in base64.
	holdBytes = 16 << 10
	// holdTime is how long they are held back at most in a live answer: people watch
	// what comes word by word.
	holdTime = 20 * time.Millisecond
	// holdStep is how much earlier bytes may be given out, with those that came
	// before them. It bounds the times that are kept.
	holdStep = time.Millisecond
	// readSize is how much is read at once, in bytes.
	readSize = 16 << 10
)

// Body covers the secrets in an answer's body, which must not be compressed. Its
// bytes are given out when holdBytes more have come, at the body's end, or, where it is
// live, after holdTime. Of a live one a secret that comes in pieces over more than
// holdTime is not covered, but for its last piece. The caller must close the body.
func (r Redaction) Body(body io.ReadCloser, live bool) io.ReadCloser {
	h := &heldBody{body: body, search: newSearch(r), live: live}
	h.changed.L = &h.mu
	return h
}

// heldBody is a body whose last bytes are held back. One goroutine may read it
// while another closes it.
type heldBody struct {
	body   io.ReadCloser
	search *search
	live   bool // a client may watch it as it comes
	start  sync.Once

	mu      sync.Mutex
	changed sync.Cond
	held    []byte // what has come and is not given out; secrets are covered
	came    int64  // bytes that have come
	due     int64  // bytes that have been held for long enough
	times   []arrival
	err     error // what ended the body
	closed  bool
}

// arrival is when bytes came, which end at a place in the body.
type arrival struct {
	at  time.Time
	end int64
}

// Close ends reading, too.
func (h *heldBody) Close() error {
	h.mu.Lock()
	h.closed = true
	h.changed.Broadcast()
	h.mu.Unlock()
	return h.body.Close()
}

func (h *heldBody) Read(p []byte) (int, error) {
	h.start.Do(func() { go h.fill() })
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if h.closed {
			return 0, http.ErrBodyReadAfterClose
		}
		now := time.Now()
		if free := h.free(now); free > 0 {
			full := h.full()
			n := copy(p, h.held[:free])
			h.held = h.held[n:]
			if full && h.live { // reading goes on, and what follows has holdTime from now
				h.times = append(h.times[:0], arrival{now, h.came})
			}
			h.changed.Broadcast()
			return n, nil
		}
		if h.err != nil {
			return 0, h.err
		}
		h.wait()
	}
}

// fill reads the body to its end.
func (h *heldBody) fill() {
	b := make([]byte, readSize)
	for {
		n, err := h.body.Read(b)
		if !h.add(b[:n], err) {
			return
		}
	}
}

// add adds what has come, and waits for room. It reports whether to go on.
func (h *heldBody) add(b []byte, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.free(now) // forgets arrivals that are due
	if len(b) > 0 {
		h.held = append(h.held, b...)
		h.search.cover(h.held, len(b))
		h.came += int64(len(b))
		h.note(now)
	}
	h.err = err
	h.changed.Broadcast()
	for err == nil && !h.closed && h.full() {
		h.changed.Wait()
	}
	return err == nil && !h.closed
}

// note notes when the last bytes came, where they become due.
func (h *heldBody) note(now time.Time) {
	last := len(h.times) - 1
	switch {
	case !h.live:
	case last >= 0 && now.Sub(h.times[last].at) < holdStep:
		h.times[last].end = h.came
	default:
		h.times = append(h.times, arrival{now, h.came})
	}
}

// full says that no more is read before something is given out.
func (h *heldBody) full() bool { return len(h.held) >= holdBytes+readSize }

// free is how many of the bytes that are held may be given out. Time does not count
// while full: a slow reader would have a secret cut where reading stopped.
func (h *heldBody) free(now time.Time) int {
	if h.err == nil && h.full() {
		return len(h.held) - holdBytes
	}
	for len(h.times) > 0 && now.Sub(h.times[0].at) >= holdTime {
		h.due = h.times[0].end
		h.times = h.times[1:]
	}
	if h.err != nil {
		return len(h.held)
	}
	given := h.came - int64(len(h.held))
	return max(int(h.due-given), len(h.held)-holdBytes, 0)
}

// wait waits until more may be free.
func (h *heldBody) wait() {
	if len(h.times) > 0 {
		t := time.AfterFunc(time.Until(h.times[0].at.Add(holdTime)), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changed.Broadcast()
		})
		defer t.Stop()
	}
	h.changed.Wait()
}
