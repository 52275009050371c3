// SPDX-License-Identifier: Apache-2.0

package docker

// Request is what an engine is asked for.
type Request = createRequest

// Weaken changes what d asks engines for from now on.
func Weaken(d *Driver, amend func(*Request)) { d.amend = amend }
