// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package caisson

import (
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
)

// Drivers are the levels of isolation that a program with this package has, by
// name: on this system those whose engine is elsewhere.
func Drivers() map[string]sandbox.Driver { return DriversIn("") }

// DriversIn are Drivers; none of them keeps anything in a state directory.
func DriversIn(string) map[string]sandbox.Driver {
	return map[string]sandbox.Driver{docker.Name: docker.New(docker.Options{})}
}
