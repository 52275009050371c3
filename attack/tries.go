// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/caisson-run/caisson/attack/probe"
)

// What a probe may say. It runs in a sandbox that may be broken, next to code
// that the case is about: nothing that it says is believed but that it found
// something, and none of it is kept beyond these bounds.
const (
	longestLine = 16 << 10
	maxTries    = 16 << 10
	maxText     = 512 // of a description or error that is shown
)

// probeLog reads a probe's output as it comes. The zero value is ready for use; it
// may be used from several goroutines.
type probeLog struct {
	mu    sync.Mutex
	line  []byte
	over  bool // the line is too long and is thrown away
	all   []probe.Try
	bytes int64
	seen  map[string]chan struct{}
}

// Write never fails.
func (t *probeLog) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += int64(len(p))
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		if len(t.line)+len(part) > longestLine {
			t.over, t.line = true, nil
		}
		if !t.over {
			t.line = append(t.line, part...)
		}
		if ended {
			t.take(t.line)
			t.line, t.over = t.line[:0], false
		}
	}
	return len(p), nil
}

// take adds one line, if it is one.
func (t *probeLog) take(line []byte) {
	var one probe.Try
	if len(t.all) >= maxTries || json.Unmarshal(line, &one) != nil || one.Case == "" {
		return
	}
	one.What, one.Error = cut(one.What), cut(one.Error)
	t.all = append(t.all, one)
	if len(one.Case) < 16 {
		t.signal(one.Case)
	}
}

func cut(s string) string {
	if len(s) > maxText {
		return s[:maxText]
	}
	return s
}

// signal closes the channel of a case that was named for the first time.
func (t *probeLog) signal(id string) {
	c := t.channel(id)
	select {
	case <-c:
	default:
		close(c)
	}
}

func (t *probeLog) channel(id string) chan struct{} {
	if t.seen == nil {
		t.seen = make(map[string]chan struct{})
	}
	if t.seen[id] == nil {
		t.seen[id] = make(chan struct{})
	}
	return t.seen[id]
}

// Said is closed once the probe has named a case.
func (t *probeLog) Said(id string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.channel(id)
}

// Of are the tries of one case.
func (t *probeLog) Of(id string) []probe.Try {
	t.mu.Lock()
	defer t.mu.Unlock()
	var some []probe.Try
	for _, one := range t.all {
		if one.Case == id {
			some = append(some, one)
		}
	}
	return some
}

// Size is how many bytes came.
func (t *probeLog) Size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// Last is what was said last, for people; empty when nothing was.
func (t *probeLog) Last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return ""
	}
	last := t.all[len(t.all)-1]
	return last.Case + " " + last.What
}
