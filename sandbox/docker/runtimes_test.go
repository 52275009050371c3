// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
	"github.com/caisson-run/caisson/sandbox/docker/enginetest"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// runscVariable and kataVariable are hostVariable for an engine that has gVisor's
// runtime, and for one that has Kata Containers.
const (
	runscVariable = "CAISSON_RUNSC_TEST_HOST"
	kataVariable  = "CAISSON_TEST_KATA"
)

// TestRunsc runs something on a stock runsc: it is another kernel that answers, and
// what that kernel refuses the agent does without.
func TestRunsc(t *testing.T) {
	_, client := boxOn(t, runtimeOf(runscHost(t), "runsc"), imageFixture(t))
	var out bytes.Buffer
	exit, err := client.Run(t.Context(), &sandbox.Exec{Argv: []string{hello}, Dir: "/", Stdout: &out})
	if err != nil || exit.Code == nil || *exit.Code != 0 || !strings.HasSuffix(out.String(), "uid 1000 \"hello\" <nil>, true, /etc/passwd\n") {
		t.Errorf("%+v, %v: %s", exit, err, &out)
	}
	out.Reset()
	if _, err := client.Run(t.Context(), &sandbox.Exec{Argv: []string{hello, "kernel"}, Dir: "/", Stdout: &out}); err != nil || !strings.Contains(out.String(), "gvisor") {
		t.Errorf("the kernel is %q, %v", &out, err)
	}
}

// TestRunscWithoutGroups: called with --ignore-cgroups runsc holds neither memory nor
// processors. A written limit is refused then.
func TestRunscWithoutGroups(t *testing.T) {
	host := runscHost(t, "--ignore-cgroups")
	for name, change := range map[sandbox.LimitName]func(*sandbox.Limits){
		sandbox.LimitMemory:  func(l *sandbox.Limits) { l.Memory = 96 << 20 },
		sandbox.LimitCPUs:    func(l *sandbox.Limits) { l.CPUs = 0.5 },
		sandbox.LimitCPUTime: func(l *sandbox.Limits) { l.CPUTime = time.Second },
	} {
		spec := imageFixture(t)
		change(&spec.Limits)
		spec.Limits.Explicit = map[sandbox.LimitName]bool{name: true}
		_, err := runtimeOf(host, "runsc").Start(t.Context(), spec)
		if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), string(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	boxOn(t, runtimeOf(host, "runsc"), imageFixture(t)) // where none is written
}

// TestConformanceOnRunsc holds docker:runsc, on a stock runsc of the very gVisor that
// caisson embeds, to the promises that need nothing of the host.
func TestConformanceOnRunsc(t *testing.T) { conformanceOn(t, runscHost(t), "runsc") }

func TestConformanceOnRunscAsNobody(t *testing.T) {
	runscHost(t)
	drivertest.AsUser(t, 65534, "TestConformanceOnRunsc")
}

// TestConformanceOnKata is the same with Kata Containers, which no package of Debian's
// has: make test-kata says how.
func TestConformanceOnKata(t *testing.T) {
	host := os.Getenv(kataVariable)
	if host == "" {
		t.Skip("it takes an engine that has Kata Containers: make test-kata")
	}
	conformanceOn(t, host, "kata")
}

func conformanceOn(t *testing.T, host, name string) {
	h := drivertest.Harness{New: func(testing.TB) sandbox.Driver { return runtimeOf(host, name) }, OnImage: true}
	if name == "kata" {
		h.Shm = 64 << 20 // getShmSize of virtcontainers/pkg/oci, whatever the tmpfs was to be
	}
	drivertest.Run(t, h)
}

func runtimeOf(host, name string) sandbox.Driver {
	return docker.New(docker.Options{Host: host}).Variant(name)
}

// runscHost starts an engine with a stock runsc for one test, and hands it to one that
// runs as another user. It calls runsc with these flags.
func runscHost(t *testing.T, flags ...string) string {
	t.Helper()
	if raceDetector {
		t.Skip("needs a build without the race detector")
	}
	if host := os.Getenv(runscVariable); host != "" {
		return host
	}
	if os.Geteuid() != 0 {
		t.Skip(enginetest.ErrNotRoot)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "runsc")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "gvisor.dev/gvisor/runsc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building a stock runsc: %v\n%s", err, out)
	}
	if len(flags) > 0 {
		script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", path, strings.Join(flags, " "))
		if path += ".sh"; os.WriteFile(path, []byte(script), 0o755) != nil {
			t.Fatal("cannot write a script")
		}
	}
	e, err := enginetest.StartWith(t.Context(), "runsc", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(runscVariable, e.Host)
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e.Host
}
