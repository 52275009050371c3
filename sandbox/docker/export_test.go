// SPDX-License-Identifier: Apache-2.0

package docker

import "slices"

// Request is what an engine is asked for.
type Request = createRequest

// Weaken changes what d asks engines for from now on.
func Weaken(d *Driver, amend func(*Request)) { d.amend = func(p *plan) { amend(&p.request) } }

// ShareTerminals leaves d's sandboxes the engine's.
func ShareTerminals(d *Driver) {
	d.amend = func(p *plan) {
		p.terminals = false
		p.request.HostConfig.Mounts = slices.DeleteFunc(p.request.HostConfig.Mounts, func(m mount) bool { return m.Target == terminalDir })
	}
}
