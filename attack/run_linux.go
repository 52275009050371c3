// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Run attacks a level. What it plants is gone when it returns. It must not run
// twice at once in a process: it changes this process's environment.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Session == nil || o.Isolation == "" || o.Program == "" || o.State == "" {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "attack", "it needs a session, a level, a program and a state directory")
	}
	if o.Unpack == nil {
		o.Unpack = unpack
	}
	r := &Report{Isolation: o.Isolation, Began: time.Now()}
	p, err := plant(o.Program)
	if err != nil {
		return nil, &sandbox.Error{Op: "attack", Kind: sandbox.ErrUnavailable, Problem: "the canaries cannot be planted", Cause: err,
			Hint: "it needs a temporary directory that can be written to (TMPDIR)"}
	}
	defer p.remove()
	s := &suite{Options: o, plants: p}
	var mu sync.Mutex
	report := func(id string, v Verdict, reason, mend string, tried int) {
		mu.Lock()
		defer mu.Unlock()
		c, _ := Find(id)
		f := Finding{Case: c, Verdict: v, Reason: reason, Mend: mend, Tried: tried}
		if v == Breach && mend == "" {
			f.Mend = c.Mend
		}
		r.Cases = append(r.Cases, f)
		if o.OnFinding != nil {
			o.OnFinding(f)
		}
	}
	if o.Copies {
		s.packed(ctx)
	}
	if o.wants(liveCases()...) {
		s.live(ctx, report)
	}
	s.scenes(ctx, report)
	r.Took = time.Since(r.Began)
	r.TookMS = r.Took.Milliseconds()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.sort()
	return r, nil
}

// packed has this host's programs packed for a root, where the level wants that: the cases have
// no time for it. What goes wrong they say themselves.
func (s *suite) packed(ctx context.Context) {
	sc := s.begin(ctx, limited(func(l *sandbox.Limits) { l.Wall = packTimeout }, sandbox.LimitWall), probe.ModeNetwork, `{}`)
	_ = sc.waits(probe.CaseReady, packTimeout)
	sc.end()
}

// scenes makes the cases that have sandboxes of their own. Those about files, about
// the network and about what decides calls wait for much and do not meet: each kind
// goes on beside the others, one case after another. Those about limits and the end
// look at all that this process has started, or at what the host counts, and come
// afterwards, alone.
func (s *suite) scenes(ctx context.Context, report func(id string, v Verdict, reason, mend string, tried int)) {
	lanes := map[string][]string{}
	for _, c := range Cases() {
		lane := map[byte]string{'F': "files", 'K': "files", 'S': "network", 'N': "network", 'P': "calls", 'V': "network"}[c.ID[0]]
		if _, ok := scenes()[c.ID]; ok && s.wants(c.ID) {
			lanes[lane] = append(lanes[lane], c.ID)
		}
	}
	along := func(ids []string) {
		for _, id := range ids {
			if ctx.Err() == nil {
				f := scenes()[id](s, ctx)
				report(id, f.verdict, f.reason, f.mend, 0)
			}
		}
	}
	alone := lanes[""]
	delete(lanes, "")
	var all sync.WaitGroup
	for _, ids := range lanes {
		all.Go(func() { along(ids) })
	}
	all.Wait()
	along(alone)
}

func collectWish(pattern, dest string) policy.CollectWish {
	return policy.CollectWish{Pattern: pattern, Dest: dest}
}
