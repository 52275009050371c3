// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"encoding/json"

	"github.com/caisson-run/caisson/sandbox"
)

// namesAnnotation tells package sentry which names the sandbox has. Its name is repeated
// here as memoryAnnotation's is.
const namesAnnotation = "dev.caisson.names"

// names says what the sandbox is called. One with names of its own begins with that of all
// others, as its kernel sets what differs from what it finds: see package sentry.
func (p *plan) names(s *sandbox.Spec) error {
	if s.MachineID == "" && s.Hostname != "" {
		p.oci.Hostname = s.Hostname
		return nil
	}
	p.oci.Hostname = "sandbox"
	if s.MachineID == "" {
		return nil
	}
	b, err := json.Marshal(map[string]any{"hostname": s.Hostname, "files": s.NameFiles()})
	if err == nil {
		p.oci.Annotations[namesAnnotation] = string(b)
	}
	return err
}
