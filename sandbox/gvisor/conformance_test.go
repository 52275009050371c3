// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(testing.TB) sandbox.Driver { return gvisor.New(gvisor.Options{}) }, Lingers: true})
}

// An ordinary user: no capabilities, no control groups on version 1, one uid to
// map.
func TestConformanceAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestConformance") }
