// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// The test binary starts itself again as gVisor's halves, as bench does.
func TestMain(m *testing.M) {
	caisson.Reexec()
	os.Exit(m.Run())
}

func TestDriverRow(t *testing.T) {
	s := actors(t, "exit 1", "echo x")
	r := s.firstByte(t.Context())
	if r.runs != "2" || len(r.notes) != 0 || !strings.Contains(r.ours, " ms (") {
		t.Errorf("%+v", r)
	}
}
