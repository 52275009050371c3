// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

// In a container whose filter refuses what a sandbox's standing is asked for and changed
// by, sandboxes of who has nothing to give up are made.
func TestFiltered(t *testing.T) {
	if !drivertest.Refused(t, unix.SYS_SCHED_GETATTR, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_IOPRIO_GET, unix.SYS_IOPRIO_SET, unix.SYS_PERSONALITY) {
		return
	}
	res, err := process.New(process.Options{}).Run(t.Context(), fixture(t), &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/"})
	if err != nil || res.Status != sandbox.StatusSuccess {
		t.Errorf("%+v, %v", res, err)
	}
}

// Who surrounds caisson with a filter is told which call it refuses.
func TestRefusedByName(t *testing.T) {
	for name, call := range map[string]uint32{"sethostname": unix.SYS_SETHOSTNAME, "pidfd_open": unix.SYS_PIDFD_OPEN} {
		t.Run(name, func(t *testing.T) {
			if !drivertest.Refused(t, call) {
				return
			}
			_, err := roads["made ahead"](t.Context(), process.New(process.Options{}), fixture(t), &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/"})
			var e *sandbox.Error
			if !errors.As(err, &e) || !errors.Is(err, unix.EPERM) || !strings.Contains(e.Problem, "("+name+")") || !strings.Contains(e.Hint, "doctor") {
				t.Errorf("%+v", err)
			}
		})
	}
}
