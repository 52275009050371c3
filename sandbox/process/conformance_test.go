// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/egress/router"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

func TestMain(m *testing.M) {
	switch os.Args[0] { // the binary is its own guest agent, and its own router
	case guest.AgentArgv0:
		agent.Main()
	case wire.Argv0:
		router.Main()
	}
	attacktest.Init()
	drivertest.UseDisk()
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(testing.TB) sandbox.Driver { return process.New(process.Options{}) }})
}

// An ordinary user: no capabilities, no control groups on version 1, one uid to
// map.
func TestConformanceAsNobody(t *testing.T) {
	drivertest.AsUser(t, 65534, "(TestConformance|TestPosture|TestFewProcesses|TestFewAreNotNamed|TestProgramOfTheAgent|TestKilledWhileItMakes|TestNoSiblings|TestUnknownChildrenAreReaped)")
}
