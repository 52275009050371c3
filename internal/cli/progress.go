// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// progress is a line that grows while an image is pulled, or the host's files are packed, and
// goes when that is done. It is for terminals:
// elsewhere one sentence says what takes so long.
type progress struct {
	a    *app
	what string

	mu    sync.Mutex
	begun time.Time // the zero time until something is pulled
	shown time.Time
	ended bool
}

func (a *app) startProgress(what string) *progress { return &progress{a: a, what: what} }

// set says how many bytes of how many were read. It may be called from any
// goroutine.
func (p *progress) set(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.ended || now.Sub(p.shown) < 100*time.Millisecond && done < total {
		return
	}
	first := p.begun.IsZero()
	if first {
		p.begun = now
	}
	p.shown = now
	if !isTerminal(p.a.err) {
		if first {
			p.a.note("%s, %s", p.what, mib(total))
		}
		return
	}
	if done >= total {
		fmt.Fprint(p.a.err, "\r\x1b[K") // the program writes next
		return
	}
	fmt.Fprintf(p.a.err, "\r\x1b[K%s", p.line(done, total))
}

// line is "pulling python:3.14 [#####.....]  50%  24 of 48 MiB".
func (p *progress) line(done, total int64) string {
	const width = 24
	part := 1.0
	if total > 0 {
		part = min(float64(done)/float64(total), 1)
	}
	full := int(part * width)
	return fmt.Sprintf("%s [%s%s] %3.0f%%  %s of %s", printable(p.what), strings.Repeat("#", full), strings.Repeat(".", width-full), part*100, mib(done), mib(total))
}

// end takes the line away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended && !p.begun.IsZero() && isTerminal(p.a.err) {
		fmt.Fprint(p.a.err, "\r\x1b[K")
	}
	p.ended = true
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
