// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

func TestConformance(t *testing.T) {
	host := engineHost(t)
	drivertest.Run(t, drivertest.Harness{New: func(testing.TB) sandbox.Driver { return docker.New(docker.Options{Host: host}) }})
}

// The user may speak to the engine and has no other rights on this host. The
// sandbox's user has none then, too.
func TestConformanceAsNobody(t *testing.T) {
	engineHost(t)
	drivertest.AsUser(t, 65534, "TestConformance")
}
