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

// Guard reads a running program's usage and holds what no kernel holds for
// all of its processes together: CPU time, and the watch rules.
type Guard struct {
	Limits sandbox.Limits
	Rules  []policy.WatchRule
	End    func(error)         // cancels the run with a cause
	Report func(policy.Fired)  // a watch rule that only reports; may be nil
	live   func(sandbox.Usage) // for --stats; may be nil

	mu    sync.Mutex
	watch *policy.Watch
}

// depends says whether anything is held by what is read.
func (g *Guard) depends() bool { return g.Limits.CPUTime != 0 || len(g.Rules) > 0 }

// Unreadable is the end of a sandbox whose use could not be read for so long, because of err.
func Unreadable(long time.Duration, err error) error {
	return &Ending{Status: sandbox.StatusError, Reason: fmt.Sprintf("what it uses could not be read for %s, so that its limits did not hold: %v", long.Round(time.Second), err)}
}

// Every is how often usage has to be read: often enough for the shortest thing
// that is guarded, at most 20 times a second; 0 is not at all.
func (g *Guard) Every() time.Duration {
	if !g.depends() && g.live == nil {
		return 0
	}
	every := 500 * time.Millisecond
	if t := g.Limits.CPUTime; t > 0 {
		every = min(every, t/20)
	}
	for _, r := range g.Rules {
		every = min(every, max(r.For/5, 100*time.Millisecond))
	}
	return max(every, 50*time.Millisecond)
}

// Sample takes one reading.
func (g *Guard) Sample(u sandbox.Usage) {
	if g.live != nil {
		g.live(u)
	}
	if t := g.Limits.CPUTime; t > 0 && u.CPU != nil && *u.CPU >= t {
		g.End(Exceeded(sandbox.LimitCPUTime, Sentence(sandbox.LimitCPUTime, g.Limits)))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watch == nil {
		g.watch = policy.NewWatch(g.Rules, g.Limits)
	}
	for _, f := range g.watch.Observe(u) {
		if f.Kill() {
			g.End(&Ending{Status: sandbox.StatusResourceExceeded, Resource: f.Resource(), Rule: f.Rule.From, Reason: "watch rule: " + f.String()})
		} else if g.Report != nil {
			g.Report(f)
		}
	}
}

// Watchable refuses rules about what the level does not measure here: they would
// never fire.
func Watchable(ctx context.Context, call *Call, plan *policy.Plan, usage func(context.Context) (sandbox.Usage, error)) error {
	rules := watchRules(call, plan)
	if len(rules) == 0 {
		return nil
	}
	u, err := usage(ctx)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if why := rule.Blind(u, plan.Limits); why != "" {
			return cannotWatch(rule, why, "leave the rule out, or take another level")
		}
	}
	return nil
}

// watchRules are those of the policy, and those of the call.
func watchRules(call *Call, plan *policy.Plan) []policy.WatchRule {
	return slices.Concat(plan.Watch, call.Watch)
}

func cannotWatch(rule policy.WatchRule, why, hint string) error {
	return &sandbox.Error{Op: "watch rule " + sandbox.Quoted(rule.When), Kind: sandbox.ErrUnsupported, Problem: why, Hint: hint, Rule: network.RuleFrom(rule.From)}
}

// MaxBlind is how long a sandbox may go on whose use cannot be read while
// something depends on it.
const MaxBlind = 30 * time.Second
