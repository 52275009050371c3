// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Reading is what a sandbox used at one moment.
type Reading struct {
	sandbox.Usage
	// CPUPercent is the processor time since the reading before, in percent of one
	// processor; nil where there is none.
	CPUPercent *float64 `json:"cpu_percent,omitempty"`
}

const (
	// readEvery is how often the use of a sandbox is read that is in use;
	// readIdleEvery when it was not for a while.
	readEvery     = 5 * time.Second
	readIdleEvery = time.Minute
	// maxReadings are kept of each: an hour of a sandbox that is in use.
	maxReadings = 720
)

// series are the readings of one sandbox, from the oldest that is kept.
type series struct {
	list []Reading
	next int // where the next one goes, once there are most
}

func (s *series) add(u sandbox.Usage) {
	r := Reading{Usage: u}
	if n := len(s.list); n > 0 {
		last := s.list[(s.next+n-1)%n]
		if took := u.At.Sub(last.At); u.CPU != nil && last.CPU != nil && took > 0 && *u.CPU >= *last.CPU {
			p := 100 * float64(*u.CPU-*last.CPU) / float64(took)
			r.CPUPercent = &p
		}
	}
	if len(s.list) < maxReadings {
		s.list = append(s.list, r)
		return
	}
	s.list[s.next] = r
	s.next = (s.next + 1) % maxReadings
}

func (s *series) since(t time.Time) []Reading {
	out := []Reading{}
	for i := range s.list {
		if r := s.list[(s.next+i)%len(s.list)]; !r.At.Before(t) {
			out = append(out, r)
		}
	}
	return out
}

// Readings returns what the sandbox used since t, oldest first: one reading every 5 s
// while it is in use, fewer when it is not, for about an hour; and one of now.
func (h *Handle) Readings(ctx context.Context, since time.Time) ([]Reading, error) {
	l, err := h.find(ctx)
	if err != nil {
		return nil, err
	}
	l.read(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readings.since(since), nil
}

// read takes one reading, if the sandbox runs and can say.
func (l *managed) read(ctx context.Context) {
	l.mu.Lock()
	in := l.in
	l.mu.Unlock()
	if in == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, session.ReadTime)
	defer cancel()
	u, err := in.box.Usage(ctx)
	if err != nil {
		return // absent, not 0
	}
	u.At = l.b.o.Clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.readings.list); n == 0 || u.At.After(l.readings.list[(l.readings.next+n-1)%n].At) {
		l.readings.add(u)
	}
}

// readSoon sets the timer of the next reading. The caller holds mu.
func (l *managed) readSoon() {
	if l.reading != nil {
		l.reading()
		l.reading = nil
	}
	if l.silent || l.in == nil {
		return
	}
	every := readEvery
	if l.busy == 0 && l.b.o.Clock.Now().Sub(l.used) > readIdleEvery {
		every = readIdleEvery
	}
	l.reading = l.b.o.Clock.AfterFunc(every, func() {
		if l.b.background.hold() {
			defer l.b.background.work.Done()
			l.read(l.b.background.life)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.readSoon()
		}
	})
}
