// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
	"github.com/caisson-run/caisson/sandbox/docker/enginetest"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// podmanVariable is hostVariable for Podman.
const podmanVariable = "CAISSON_PODMAN_TEST_HOST"

// TestConformanceOnPodman holds the level to the same promises on the other
// engine that it speaks to. Podman reads a mount as a line of CSV.
func TestConformanceOnPodman(t *testing.T) {
	host := podmanHost(t)
	drivertest.Run(t, drivertest.Harness{
		New:     func(testing.TB) sandbox.Driver { return docker.New(docker.Options{Host: host}) },
		Level:   "docker (Podman)",
		Refuses: func(name string) bool { return strings.ContainsAny(name, ",\"") },
	})
}

func TestConformanceOnPodmanAsNobody(t *testing.T) {
	podmanHost(t)
	drivertest.AsUser(t, 65534, "TestConformanceOnPodman")
}

// podmanHost starts an engine for one test, and hands it to one that runs as
// another user.
func podmanHost(t *testing.T) string {
	t.Helper()
	if raceDetector {
		t.Skip("needs a build without the race detector")
	}
	if host := os.Getenv(podmanVariable); host != "" {
		return host
	}
	if os.Geteuid() != 0 {
		t.Skip(enginetest.ErrNotRoot)
	}
	e, err := enginetest.StartPodman(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(podmanVariable, e.Host)
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e.Host
}
