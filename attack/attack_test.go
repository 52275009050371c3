// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/internal/cli"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/faketest"
)

// again makes the test binary a caisson; its value is the state directory.
const again = "CAISSON_ATTACK_AGAIN"

func TestMain(m *testing.M) {
	caisson.Reexec()
	faketest.Init()
	attacktest.Init()
	if how := os.Getenv(weakEnv); how != "" {
		if err := serveWeakly(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if state := os.Getenv(again); state != "" {
		os.Setenv("CAISSON_STATE", state)
		drivers := caisson.DriversIn
		if os.Getenv(ownNetwork) != "" {
			drivers = func(string) map[string]sandbox.Driver { return map[string]sandbox.Driver{"gvisor": nothing(nil)} }
		}
		os.Exit(cli.Main(os.Args, drivers))
	}
	drivertest.UseDisk()
	os.Exit(m.Run())
}

func second(program, state string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), again+"="+state)
	return cmd
}

func TestGVisor(t *testing.T) {
	attacktest.Holds(t, attacktest.Level{Driver: caisson.Drivers()["gvisor"], Again: second})
}

func TestGVisorAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestGVisor") }

func TestProcess(t *testing.T) {
	attacktest.Holds(t, attacktest.Level{Driver: caisson.Drivers()["process"], Again: second})
}

func TestProcessAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestProcess") }
