// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network"
)

// guard reads a running program's usage and holds what no kernel holds for
// all of its processes together: CPU time, and the watch rules.
type guard struct {
	limits sandbox.Limits
	rules  []policy.WatchRule
	end    func(error)         // cancels the run with a cause
	report func(policy.Fired)  // a watch rule that only reports; may be nil
	live   func(sandbox.Usage) // for --stats; may be nil

	mu    sync.Mutex
	watch *policy.Watch
}

// depends says whether anything is held by what is read.
func (g *guard) depends() bool { return g.limits.CPUTime != 0 || len(g.rules) > 0 }

// blind is the end of a sandbox whose use could not be read for so long, because of err.
func blind(long time.Duration, err error) error {
	return &ending{status: sandbox.StatusError, reason: fmt.Sprintf("what it uses could not be read for %s, so that its limits did not hold: %v", long.Round(time.Second), err)}
}

// every is how often usage has to be read: often enough for the shortest thing
// that is guarded, at most 20 times a second; 0 is not at all.
func (g *guard) every() time.Duration {
	if !g.depends() && g.live == nil {
		return 0
	}
	every := 500 * time.Millisecond
	if t := g.limits.CPUTime; t > 0 {
		every = min(every, t/20)
	}
	for _, r := range g.rules {
		every = min(every, max(r.For/5, 100*time.Millisecond))
	}
	return max(every, 50*time.Millisecond)
}

// sample takes one reading.
func (g *guard) sample(u sandbox.Usage) {
	if g.live != nil {
		g.live(u)
	}
	if t := g.limits.CPUTime; t > 0 && u.CPU != nil && *u.CPU >= t {
		g.end(exceeded(sandbox.LimitCPUTime, sentence(sandbox.LimitCPUTime, g.limits)))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watch == nil {
		g.watch = policy.NewWatch(g.rules, g.limits)
	}
	for _, f := range g.watch.Observe(u) {
		if f.Kill() {
			g.end(&ending{status: sandbox.StatusResourceExceeded, resource: f.Resource(), rule: f.Rule.From, reason: "watch rule: " + f.String()})
		} else if g.report != nil {
			g.report(f)
		}
	}
}

// watchable refuses rules about what the level does not measure here: they would
// never fire.
func (r *run) watchable(ctx context.Context, usage func(context.Context) (sandbox.Usage, error)) error {
	rules := r.watchRules()
	if len(rules) == 0 {
		return nil
	}
	u, err := usage(ctx)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if why := rule.Blind(u, r.plan.Limits); why != "" {
			return cannotWatch(rule, why, "leave the rule out, or take another level")
		}
	}
	return nil
}

// watchRules are those of the policy, and those of the call.
func (r *run) watchRules() []policy.WatchRule { return slices.Concat(r.plan.Watch, r.call.Watch) }

func cannotWatch(rule policy.WatchRule, why, hint string) error {
	return &sandbox.Error{Op: "watch rule " + sandbox.Quoted(rule.When), Kind: sandbox.ErrUnsupported, Problem: why, Hint: hint, Rule: network.RuleFrom(rule.From)}
}

// maxBlind is how long a sandbox may go on whose use cannot be read while
// something depends on it.
const maxBlind = 30 * time.Second
