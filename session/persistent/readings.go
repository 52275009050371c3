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
	if len(s.list) > 0 {
		last := s.last()
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

// last is the newest reading of those that there are.
func (s *series) last() *Reading { return &s.list[(s.next+len(s.list)-1)%len(s.list)] }

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
	l.meter.read(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meter.series.since(since), nil
}

// meter reads now and then what a sandbox uses, while it runs.
type meter struct {
	l      *managed // whose mu guards the series
	series series
}

// read takes one reading, if the sandbox runs and can say.
func (m *meter) read(ctx context.Context) {
	l := m.l
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
	if s := &m.series; len(s.list) == 0 || u.At.After(s.last().At) {
		s.add(u)
	}
}

// soon sets the timer of the next reading. The caller holds the sandbox's mu.
func (m *meter) soon() {
	l := m.l
	t := &l.timers
	if t.reading != nil {
		t.reading()
		t.reading = nil
	}
	if t.silent || l.in == nil {
		return
	}
	every := readEvery
	if l.active.calls == 0 && l.b.o.Clock.Now().Sub(l.active.last) > readIdleEvery {
		every = readIdleEvery
	}
	g := l.b.background
	t.reading = l.b.o.Clock.AfterFunc(every, func() {
		if g.hold() {
			defer g.work.Done()
			m.read(g.life)
			l.mu.Lock()
			defer l.mu.Unlock()
			m.soon()
		}
	})
}
