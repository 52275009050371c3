// SPDX-License-Identifier: Apache-2.0

package build

import (
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// DefaultLimits are those of a step where neither the caller nor the definition nor the
// policy says others: what installing packages and compiling take on a small machine. A
// Builder's Session has a policy with these as its defaults: what a silent one lets steps have.
func DefaultLimits() sandbox.Limits {
	return sandbox.Limits{
		Wall: 30 * time.Minute, CPUs: 2, Memory: 2 << 30, Processes: 1024, OpenFiles: 4096,
		Disk: 10 << 30, Inodes: 1 << 20, Tmp: sandbox.DefaultLimits().Tmp, Output: 16 << 20,
	}
}

// network is what steps reach: what the caller says, and what the definition does.
func (w *work) network() []string { return slices.Concat(w.Call.Network, w.def.Network) }

// limits are those of a step: what the caller says, else what the definition does, else
// the defaults where the policy lets them through.
func (w *work) limits() sandbox.Limits {
	defaults := DefaultLimits()
	out := w.def.Limits
	out.Explicit = maps.Clone(w.def.Limits.Explicit)
	if out.Explicit == nil {
		out.Explicit = map[sandbox.LimitName]bool{}
	}
	take := func(from *sandbox.Limits, name sandbox.LimitName) {
		if text := policy.LimitText(from, name); text != "" {
			_ = policy.ReadLimit(&out, name, text) // it was read from such a text, or is ours
			out.Explicit[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.Call.Limits.Explicit)) {
		take(&w.Call.Limits, name)
	}
	for _, name := range sandbox.LimitNames() {
		if w.roomy && !out.Explicit[name] {
			take(&defaults, name)
		}
	}
	return out
}
