// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// inputs are the files that were read for this run, or are going to be: policies, files of
// variables, secrets and certificates, an image, a script. Who could write to one in a
// mount would decide what the next run may do.
func (r *run) inputs() []hostpath.Input {
	var out []hostpath.Input
	for _, f := range slices.Concat(r.s.o.Policy.Reads(), r.s.o.Read, r.call.Read, r.plan.Reads()) {
		out = append(out, hostpath.Input(f))
	}
	if r.call.File != "" {
		out = append(out, hostpath.Input{Path: r.call.File})
	}
	return out
}
