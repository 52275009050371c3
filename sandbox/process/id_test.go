// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// An id names files of the kernel's, so nothing is one that could name another.
func TestNoID(t *testing.T) {
	d := process.New(process.Options{})
	for _, id := range []string{
		"", "sbx_", "sbx_" + strings.Repeat("a", 15), "sbx_" + strings.Repeat("a", 101), "SBX_" + strings.Repeat("a", 16),
		strings.Repeat("a", 20), "sbx_aaaaaaaa/aaaaaaaa", "sbx_../../../../../../aa", "sbx_aaaaaaaaaaaaaaaa\n", "sbx_aaaaaaaaaaaaaaaa\x00",
		"sbx_aaaaaaaa-aaaaaaaa", "sbx_aaaaaaaa_aaaaaaaa", "sbx_aaaaaaaaaaaaaaaä", "\nsbx_aaaaaaaaaaaaaaaa",
	} {
		spec := world(t)
		spec.ID = id
		if _, err := d.Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/"}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, text := range []string{strings.Repeat("Z", 16), strings.Repeat("9", 100)} {
		spec := world(t)
		spec.ID = "sbx_" + text
		if _, err := d.Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/"}); err != nil {
			t.Errorf("%q: %v", spec.ID, err)
		}
	}
}
