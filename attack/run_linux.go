// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"time"

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
	report := func(id string, v Verdict, reason, mend string, tried int) {
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
	if o.wants(liveCases()...) {
		s.live(ctx, report)
	}
	for _, c := range Cases() {
		if scene, ok := scenes()[c.ID]; ok && s.wants(c.ID) && ctx.Err() == nil {
			f := scene(s, ctx)
			report(c.ID, f.verdict, f.reason, f.mend, 0)
		}
	}
	r.Took = time.Since(r.Began)
	r.TookMS = r.Took.Milliseconds()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.sort()
	return r, nil
}

func collectWish(pattern, dest string) policy.CollectWish {
	return policy.CollectWish{Pattern: pattern, Dest: dest}
}
