// SPDX-License-Identifier: Apache-2.0

package environment

import "testing"

func TestOwnedByUs(t *testing.T) {
	own := func(gid uint32) bool { return gid == 1000 }
	for _, tc := range []struct {
		name           string
		uid, gid, mode uint32
		ok             bool
	}{
		{"root's", 0, 0, 0o755, true},
		{"the caller's", 1000, 1000, 0o755, true},
		{"another's", 1001, 1000, 0o755, false},
		{"everybody's", 1000, 1000, 0o777, false},
		{"everybody's, with a sticky bit", 0, 0, 0o1777, false},
		{"the caller's own group's", 1000, 1000, 0o775, true},
		{"another group's", 1000, 50, 0o775, false},
	} {
		if why := notOurs(tc.uid, tc.gid, tc.mode, 1000, own); (why == "") != tc.ok {
			t.Errorf("%s: %q", tc.name, why)
		}
	}
}
