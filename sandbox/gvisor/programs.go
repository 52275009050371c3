// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"encoding/json"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// programsAnnotation tells package sentry what may be executed, as JSON of its
// Programs. Both are repeated here so that this package need not link gVisor.
const programsAnnotation = "dev.caisson.programs"

type programs struct {
	Files   []string `json:"files,omitempty"`
	Trees   []string `json:"trees,omitempty"`
	Loaders []string `json:"loaders,omitempty"`
	Closed  []string `json:"closed,omitempty"`
	Restart bool     `json:"restart,omitempty"`
}

// programs writes down what may be executed. The kernel inside goes by a file's
// place in the tree, which cannot be changed in the root and in what is mounted
// read-only. Everything else is no-exec, so that only scripts are started there.
func (p *plan) programs(s *sandbox.Spec, restarts bool) error {
	x := s.Executables
	if x == nil {
		return nil
	}
	b, err := json.Marshal(programs{Files: x.Files, Trees: x.Trees, Loaders: x.Loaders, Closed: x.Closed, Restart: restarts})
	p.oci.Annotations[programsAnnotation] = string(b)
	return err
}

// unexecutable says whether no program lies in a mount.
func unexecutable(x *sandbox.Executables, m sandbox.Mount) bool {
	if x == nil {
		return false
	}
	return m.Access != sandbox.ReadOnly || !slices.ContainsFunc(slices.Concat(x.Files, x.Trees), func(name string) bool { return sandbox.Within(name, m.Target) })
}
