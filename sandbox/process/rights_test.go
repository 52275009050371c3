// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// A limit above what caisson itself may have is that, and no reason not to start: a
// service may have been given few open files.
func TestLimitsAboveOurs(t *testing.T) {
	const again = "CAISSON_TEST_FEW_FILES"
	if os.Getenv(again) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestLimitsAboveOurs$", "-test.v")
		cmd.Env = append(os.Environ(), again+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1000, Max: 1000}); err != nil {
		t.Fatal(err)
	}
	spec := fixture(t)
	spec.Limits.OpenFiles = 8192
	var out bytes.Buffer
	res, err := process.New(process.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/bin/sh", "-c", "ulimit -n"}, Dir: "/tmp", Stdout: &out, Stderr: &out})
	if err != nil || res.Status != sandbox.StatusSuccess || out.String() != "1000\n" {
		t.Errorf("%+v, %v: %s", res, err, out.String())
	}
}

// Where the kernel would hand crashes to the host's handler, the level says so and does
// not run.
func TestNoCoreLimitOfOne(t *testing.T) {
	const again = "CAISSON_TEST_NO_CORES"
	if os.Getenv(again) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestNoCoreLimitOfOne$", "-test.v")
		cmd.Env = append(os.Environ(), again+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	d := process.New(process.Options{})
	if c, err := d.Probe(t.Context()); err != nil || !strings.Contains(c.Unusable, "ulimit -Hc") || c.Remedy == "" {
		t.Errorf("%+v, %v", c, err)
	}
	if res, err := d.Run(t.Context(), fixture(t), &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/tmp"}); err == nil {
		t.Errorf("it ran: %+v", res)
	}
}
