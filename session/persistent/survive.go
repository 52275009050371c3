// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// A persistent sandbox runs on when this process is killed, where the level can
// and the operator wants it: until the next process takes it over, or its grace is
// over. That is so from when its row says that it runs, and no sooner, so that a
// sandbox of which no caller has heard ends with its maker.

// survivor is the sandbox as one that may outlive this process; nil when it may
// not.
func (in *running) survivor() sandbox.Survivor {
	if s, ok := in.box.(sandbox.Survivor); ok && in.env.Spec.Outlives {
		return s
	}
	return nil
}

// life is what the next caisson will need; nil when the sandbox dies with this one.
func (in *running) life() *registry.Life {
	if in.survivor() == nil {
		return nil
	}
	r := in.run
	return &registry.Life{
		Run: r.ID, Environment: r.Digest, User: in.env.Spec.User, Dir: in.env.Dir, Search: slices.Clone(in.env.Search),
		Env: slices.Clone(in.env.ImageEnv), Trust: maps.Clone(in.env.Trust),
	}
}

// survive tells the level how long a running sandbox stays without this process:
// for the grace, and no longer than its time. What is to be paused then is not
// ended instead; the next owner sees to it.
func (l locked) survive() {
	l.mu.Lock()
	in, rec := l.in, l.rec
	if l.cold() == registry.Frozen {
		in = l.frozen
	}
	l.mu.Unlock()
	if in == nil {
		return
	}
	s := in.survivor()
	if s == nil {
		return
	}
	now := l.b.o.Clock.Now()
	var until time.Time
	switch { // by the host's clock, which the level has
	case rec.OnTimeout == registry.Kill && !rec.Ends.IsZero():
		until = time.Now().Add(rec.Ends.Sub(now))
	case rec.Limits.Wall > 0:
		until = time.Now().Add(rec.Limits.Wall - rec.RanUntil(now))
	}
	if err := s.Outlive(l.b.o.Grace, until); err != nil && in.gone.Err() == nil {
		l.b.o.Notice("sandbox " + l.id + " would end with caisson: " + err.Error())
	}
}
