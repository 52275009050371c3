// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

func TestTakePassed(t *testing.T) {
	t.Setenv(statusVariable, "")
	args := takePassed([]string{"boot", "--pass-fd=13:5", fmt.Sprintf("--pass-fd=14:%d", StatusFD), fmt.Sprintf("--pass-fd=15:%d", ScratchFD), "id"}, StatusFD, statusVariable)
	if want := []string{"boot", "--pass-fd=13:5", fmt.Sprintf("--pass-fd=15:%d", ScratchFD), "id"}; !slices.Equal(args, want) {
		t.Errorf("%q, want %q", args, want)
	}
	takePassed(args, StatusFD, statusVariable) // as the kernel that is executed after this one
	if got := os.Getenv(statusVariable); got != "14" {
		t.Errorf("the pipe is %q", got)
	}
}
