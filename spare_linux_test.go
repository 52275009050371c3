// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/newborn"
)

// What is ready for the next sandbox ends with Close.
func TestCloseLeavesNoProcess(t *testing.T) {
	c, err := caisson.Open(t.Context(), caisson.Options{State: filepath.Join(t.TempDir(), "state"), StayInGroup: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res, err := c.Run(t.Context(), caisson.Request{Isolation: "gvisor", Command: []string{"true"}})
		if err != nil || res.Status != sandbox.StatusSuccess {
			t.Fatal(res, err)
		}
	}
	newborn.Await()
	if err := children(); err != nil {
		t.Log("nothing was ready: as on cgroup version 2") // else there is nothing to end
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := children(); !errors.Is(err, unix.ECHILD) {
		t.Errorf("there is a child: %v", err)
	}
}

// children is ECHILD where this process has none, alive or dead.
func children() error {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
}
