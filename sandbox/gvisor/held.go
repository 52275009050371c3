// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"encoding/json"
	"math"

	"github.com/caisson-run/caisson/sandbox"
)

// hitsAnnotation and held are package sentry's HitsAnnotation and Held.
const hitsAnnotation = "dev.caisson.limits"

type held struct {
	Processes  int                          `json:"processes,omitempty"`
	Processors int                          `json:"processors,omitempty"`
	Scratch    map[string]sandbox.LimitName `json:"scratch,omitempty"`
}

// held tells the kernel inside which limits it holds itself, so that it says which of
// them a call failed for.
func (p *plan) held(s *sandbox.Spec) error {
	h := held{Processes: s.Limits.Processes, Processors: int(math.Ceil(s.Limits.CPUs)), Scratch: map[string]sandbox.LimitName{}}
	for _, sc := range s.Scratch {
		if limit := sc.Limit(); limit != "" {
			h.Scratch[sc.Target] = limit
		}
	}
	for _, m := range s.Mounts {
		if m.Access == sandbox.CopyOnWrite {
			h.Scratch[m.Target] = sandbox.LimitDisk
		}
	}
	if s.Sudo { // there is a layer over the root, too
		h.Scratch["/"] = sandbox.LimitDisk
	}
	b, err := json.Marshal(h)
	p.oci.Annotations[hitsAnnotation] = string(b)
	return err
}
