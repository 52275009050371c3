// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// drivers are the levels of this build, made when a command asks for them.
func drivers() map[string]sandbox.Driver {
	return map[string]sandbox.Driver{gvisor.Name: gvisor.New(gvisor.Options{})}
}
