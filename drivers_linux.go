// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
	"github.com/caisson-run/caisson/sandbox/gvisor"
	"github.com/caisson-run/caisson/sandbox/process"
)

// Drivers are the levels of isolation that a program with this package has, by
// name. Making them does nothing to the host.
func Drivers() map[string]sandbox.Driver {
	return map[string]sandbox.Driver{
		gvisor.Name:  gvisor.New(gvisor.Options{}),
		docker.Name:  docker.New(docker.Options{}),
		process.Name: process.New(process.Options{}),
	}
}
