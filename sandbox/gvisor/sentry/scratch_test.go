// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"fmt"
	"slices"
	"testing"
)

func TestTakeScratch(t *testing.T) {
	first, second := fmt.Sprintf("--pass-fd=14:%d", ScratchFD), fmt.Sprintf("--pass-fd=12:%d", ScratchFD+1)
	for name, try := range map[string]struct{ args, want []string }{
		"without a gofer": {
			[]string{"boot", second, "--pass-fd=13:5", first, "--pass-fd=x", "id"},
			[]string{"boot", "--gofer-filestore-fds=14", "--pass-fd=13:5", "--gofer-filestore-fds=12", "--pass-fd=x", "id"},
		},
		"in the place of gVisor's": {
			[]string{"boot", "--gofer-filestore-fds=x", "--gofer-filestore-fds=y", second, "--pass-fd=13:5", first, "id"},
			[]string{"boot", "--gofer-filestore-fds=14", "--gofer-filestore-fds=12", "--pass-fd=13:5", "id"},
		},
		"gVisor's alone": {
			[]string{"boot", "--gofer-filestore-fds=x", "--pass-fd=13:5", "id"},
			[]string{"boot", "--gofer-filestore-fds=x", "--pass-fd=13:5", "id"},
		},
		"too few": {
			[]string{"boot", "--gofer-filestore-fds=x", "--gofer-filestore-fds=y", first, "id"},
			[]string{"boot", "--gofer-filestore-fds=x", "--gofer-filestore-fds=y", first, "id"},
		},
	} {
		if got := takeScratch(slices.Clone(try.args)); !slices.Equal(got, try.want) {
			t.Errorf("%s: %q, want %q", name, got, try.want)
		}
	}
}
