// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// The whole suite boots a machine for each promise, which takes the better part of an hour
// for each kind where the processor is emulated: make test-vm.
func TestConformance(t *testing.T) { conformance(t, microvm.Micro) }

func TestConformanceOfFull(t *testing.T) { conformance(t, microvm.Full) }

func conformance(t *testing.T, m microvm.Machine) {
	if testing.Short() {
		t.Skip("it boots a machine for each promise: make test-vm")
	}
	drivertest.Run(t, drivertest.Harness{New: func(t testing.TB) sandbox.Driver { return newDriver(t, m) }, OnImage: true, Copies: true})
}

func TestConformanceAsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("it boots a machine for each promise: make test-vm")
	}
	drivertest.AsUser(t, 65534, "TestConformance")
}
