// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import "testing"

// TestNothingIsMountedUnverified: without a gofer there must be nothing that
// one would have mounted.
func TestNothingIsMountedUnverified(t *testing.T) {
	if err := verify([]handedFile{{fd: 0, target: "/data"}}, 0); err == nil {
		t.Error("a mount was taken for verified although nobody mounted it")
	}
	if err := verify(nil, 0); err != nil {
		t.Error(err)
	}
}
