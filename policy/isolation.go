// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
)

// DefaultIsolation is the level of a call that names none.
const DefaultIsolation = "gvisor"

// Isolations lists the levels that a policy file or a flag may name. Whether
// this host has one is for its driver to say.
func Isolations() []string {
	return []string{"process", "docker", "docker:runsc", "docker:kata", "gvisor", "microvm", "microvm:qemu", "microvm:firecracker", "microvm:tcg", "vm", "vm:tcg", "kubernetes", "e2b", "modal"}
}

// Offered are those of them that this version has a driver for; tcg, for tests, is not
// offered.
func Offered() []string {
	return []string{"gvisor", "process", "docker", "docker:runsc", "docker:kata", "microvm", "microvm:qemu", "microvm:firecracker", "vm"}
}

// lacking are those that this version has no driver for. It has one for tcg.
func lacking() []string {
	return slices.DeleteFunc(Isolations(), func(name string) bool {
		return slices.Contains(Offered(), name) || strings.HasSuffix(name, ":tcg")
	})
}

// isLevel is nil for the name of a level, this version's or not: a policy may be for
// other hosts, too, and session says what is not here.
func isLevel(name string) error {
	if slices.Contains(Isolations(), name) {
		return nil
	}
	return invalid(levelHint(name), "%s is not known", quote(name))
}

// levelHint is the level that was meant, or those that can be. One that this version
// lacks would be refused in its turn, so it is never named alone.
func levelHint(name string) string {
	names := strings.Join(Offered(), ", ")
	if near := nearest(name, Offered()); near != "" {
		return "did you mean " + near + "?"
	}
	if near := nearest(name, lacking()); near != "" {
		return "did you mean " + near + "? It is not in this version, which has " + names
	}
	return "this version has " + names
}

// strength is the order of the levels, and the only place that has it: what
// stands between code and the host's kernel, from least to most. A filtered
// view of the host's kernel (process, then docker with its own image), an
// application kernel (gvisor), a guest kernel with few devices (microvm), one
// with many (vm). What kubernetes, e2b and modal put in between is theirs to
// choose, what an engine calls runsc or kata is the engine's, and an emulated processor (tcg) is no
// boundary that was made for one, so they compare
// with nothing, themselves excepted. A machine monitor that is named (qemu, firecracker) is
// as good as a microvm, and nothing else is as good as it.
func strength() []string { return []string{"process", "docker", "gvisor", "microvm", "vm"} }

// atLeast says whether level a isolates at least as well as level b.
func atLeast(a, b string) bool {
	if a == b {
		return true
	}
	if a == "microvm:qemu" || a == "microvm:firecracker" {
		a = "microvm"
	}
	i, j := slices.Index(strength(), a), slices.Index(strength(), b)
	return i >= 0 && j >= 0 && i >= j
}
