// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"fmt"
	"slices"
	"testing"
)

func TestTakeScratch(t *testing.T) {
	args := []string{"boot", fmt.Sprintf("--pass-fd=12:%d", ScratchFD+1), "--pass-fd=13:5", fmt.Sprintf("--pass-fd=14:%d", ScratchFD), "--pass-fd=x", "id"}
	takeScratch(args)
	if want := []string{"boot", "--gofer-filestore-fds=14", "--pass-fd=13:5", "--gofer-filestore-fds=12", "--pass-fd=x", "id"}; !slices.Equal(args, want) {
		t.Errorf("%q, want %q", args, want)
	}
}
