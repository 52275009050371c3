// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Watch follows the usage of one sandbox and says when a watch rule fires. It
// keeps no clock: time is Usage.At. It is for one goroutine.
type Watch struct {
	rules  []watched
	memory int64 // limits.memory, for memory_percent; 0 is none
	last   sandbox.Usage
}

// watched is a rule and how long its condition has held.
type watched struct {
	WatchRule
	since time.Time // zero: it does not hold
	fired bool      // it fired since it began to hold
}

// Fired is a rule that fired.
type Fired struct {
	Rule  WatchRule
	Value float64   // what was measured last, in the metric's unit
	Since time.Time // from when on the condition has held
	At    time.Time // of the sample that made it fire
}

// Kill says whether the run is to end.
func (f Fired) Kill() bool { return f.Rule.Do != WatchReport }

// String is a sentence for people.
func (f Fired) String() string {
	value := strconv.FormatFloat(f.Value, 'f', 1, 64)
	switch f.Rule.Metric {
	case metricMemory, metricDisk, metricProcesses:
		value = strconv.FormatFloat(f.Value, 'f', -1, 64)
	}
	return fmt.Sprintf("%s has held for %v (now %s)", f.Rule.When, f.At.Sub(f.Since).Round(time.Millisecond), value)
}

// Resource is the limit that Result.Resource names when the rule kills.
func (f Fired) Resource() sandbox.LimitName {
	switch f.Rule.Metric {
	case metricCPU:
		return sandbox.LimitCPUs
	case metricProcesses:
		return sandbox.LimitProcesses
	case metricDisk:
		return sandbox.LimitDisk
	}
	return sandbox.LimitMemory
}

// NewWatch follows rules in a sandbox under limits.
func NewWatch(rules []WatchRule, limits sandbox.Limits) *Watch {
	w := &Watch{memory: limits.Memory}
	for _, r := range rules {
		w.rules = append(w.rules, watched{WatchRule: r})
	}
	return w
}

// Observe takes one sample and returns the rules that fire with it, in the
// order of the policy. A rule fires once its condition has held in every
// sample for the rule's time, and again only after it has not held in between.
// A sample without the rule's metric says nothing either way; one that is not
// later than the one before is dropped.
func (w *Watch) Observe(u sandbox.Usage) []Fired {
	if !w.last.At.IsZero() && !u.At.After(w.last.At) {
		return nil
	}
	var fired []Fired
	for i := range w.rules {
		r := &w.rules[i]
		value, from, ok := w.measure(r.Metric, u)
		if !ok {
			continue
		}
		if value < r.Value || value == r.Value && !r.OrMore {
			r.since, r.fired = time.Time{}, false
			continue
		}
		if r.since.IsZero() {
			r.since = from
		}
		if !r.fired && u.At.Sub(r.since) >= r.For {
			r.fired = true
			fired = append(fired, Fired{Rule: r.WatchRule, Value: value, Since: r.since, At: u.At})
		}
	}
	w.remember(u)
	return slices.Clip(fired)
}

// measure gives a metric's value and from when on it has been so: use of
// processors is a mean over the time since the sample before.
func (w *Watch) measure(metric string, u sandbox.Usage) (value float64, from time.Time, ok bool) {
	switch metric {
	case metricCPU:
		if u.CPU == nil || w.last.CPU == nil || *u.CPU < *w.last.CPU {
			return 0, u.At, false
		}
		return 100 * float64(*u.CPU-*w.last.CPU) / float64(u.At.Sub(w.last.At)), w.last.At, true
	case metricMemoryPercent:
		if u.Memory == nil || w.memory <= 0 {
			return 0, u.At, false
		}
		return 100 * float64(*u.Memory) / float64(w.memory), u.At, true
	case metricMemory:
		return number(u.Memory, u.At)
	case metricProcesses:
		return number(u.Processes, u.At)
	case metricDisk:
		return number(u.Disk, u.At)
	}
	return 0, u.At, false
}

// Blind says why r can never fire in a sandbox under limits of which u is a
// reading, and is empty otherwise. CPU time may only be missing yet, where something
// is read at all.
func (r WatchRule) Blind(u sandbox.Usage, limits sandbox.Limits) string {
	w := Watch{memory: limits.Memory}
	switch _, _, ok := w.measure(r.Metric, u); {
	case ok || r.Metric == metricCPU && (u.CPU != nil || u.Memory != nil):
		return ""
	case r.Metric == metricMemoryPercent && limits.Memory <= 0:
		return "there is no limits.memory to be a part of"
	}
	return "the level does not measure it here"
}

// NobodyMeasures is why a rule that is [WatchRule.Unmeasured] is refused.
const NobodyMeasures = "no level counts what scratch holds while a program runs"

// Unmeasured says that no level reads what r is about: it would never fire.
func (r WatchRule) Unmeasured() bool { return r.Metric == metricDisk }

func number[T int | int64](p *T, at time.Time) (float64, time.Time, bool) {
	if p == nil {
		return 0, at, false
	}
	return float64(*p), at, true
}

// remember keeps u as the sample before. One without a CPU reading does not
// push the last reading out, or a single gap would hide a busy stretch; the
// next mean then spans the gap.
func (w *Watch) remember(u sandbox.Usage) {
	if u.CPU == nil && w.last.CPU != nil {
		return
	}
	w.last = u
}
