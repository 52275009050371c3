// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/egress/router"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/sandbox/docker/enginetest"
)

// hostVariable hands the engine's address to tests that run as another user.
const hostVariable = "CAISSON_DOCKER_TEST_HOST"

func TestMain(m *testing.M) {
	attacktest.Init()
	switch os.Args[0] {
	case guest.AgentArgv0:
		agent.Main()
	case wire.Argv0:
		router.Main()
	case hello:
		sayHello()
		return
	}
	code := m.Run()
	if engine.Engine != nil {
		if err := engine.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// engine is the one under test, started by the first test that needs it.
var engine struct {
	sync.Once
	*enginetest.Engine
	err error
}

// engineHost is its address. The race detector is for the tests without one:
// a program with it is no agent for a sandbox with little memory.
func engineHost(t testing.TB) string {
	t.Helper()
	if raceDetector {
		t.Skip("needs a build without the race detector")
	}
	if host := os.Getenv(hostVariable); host != "" {
		return host
	}
	engine.Do(func() {
		if engine.Engine, engine.err = enginetest.Start(context.Background()); engine.err == nil {
			os.Setenv(hostVariable, engine.Host)
		}
	})
	if errors.Is(engine.err, enginetest.ErrNotRoot) {
		t.Skip(engine.err)
	}
	if engine.err != nil {
		t.Fatal(engine.err)
	}
	return engine.Host
}
