// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// DefaultIsolation is the level of a call when nobody names one.
const DefaultIsolation = "gvisor"

// Isolations lists the levels that a policy file or a flag may name. Whether
// this host has one is for its driver to say.
func Isolations() []string {
	return []string{"process", "docker", "docker:runsc", "docker:kata", "gvisor", "microvm", "vm", "kubernetes", "e2b", "modal"}
}

// strength is the order of the levels, and the only place that has it: what
// stands between code and the host's kernel, from least to most. A filtered
// view of the host's kernel (process, then docker with its own image), an
// application kernel (gvisor), a guest kernel with few devices (microvm), one
// with many (vm). What kubernetes, e2b and modal put in between is theirs to
// choose, and what an engine calls runsc or kata is the engine's, so they compare
// with nothing, themselves excepted.
func strength() []string { return []string{"process", "docker", "gvisor", "microvm", "vm"} }

// atLeast says whether level a isolates at least as well as level b.
func atLeast(a, b string) bool {
	if a == b {
		return true
	}
	i, j := slices.Index(strength(), a), slices.Index(strength(), b)
	return i >= 0 && j >= 0 && i >= j
}
