// SPDX-License-Identifier: Apache-2.0

package sandbox

import "testing"

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/data", "/data", true}, {"/data/a", "/data", true}, {"/data/a/b", "/data", true}, {"/a", "/", true}, {"/", "/", true},
		{"/database", "/data", false}, {"/dat", "/data", false}, {"/", "/data", false}, {"/a/data", "/data", false},
	} {
		if got := Within(c.path, c.dir); got != c.want {
			t.Errorf("Within(%q, %q) = %v", c.path, c.dir, got)
		}
	}
}
