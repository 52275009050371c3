// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/policy"
)

func TestSeenFrom(t *testing.T) {
	for _, tc := range []struct {
		pattern, target string
		rest            []string
		whole           bool
	}{
		{"**/.env", "/data", []string{"**/.env"}, false},
		{"/data/secret", "/data", []string{"secret"}, false},
		{"/data/secret", "/other", nil, false},
		{"/data", "/data", nil, true},
		{"/data", "/data/sub", nil, true},
		{"/data/**", "/data", []string{"**"}, false},
		{"/*/x", "/data", []string{"x"}, false},
		{"secret/*", "/home/user/in", nil, false},
		{"in/*.pem", "/home/user/in", []string{"*.pem"}, false},
		{"/home/**/k", "/home/user/in", []string{"**/k"}, false},
		{"/d?ta/k", "/data", []string{"k"}, false},
	} {
		rest, whole := seenFrom(tc.pattern, tc.target, "/home/user")
		slices.Sort(rest)
		if diff := cmp.Diff(tc.rest, rest); diff != "" || whole != tc.whole {
			t.Errorf("%s from %s: whole %v\n%s", tc.pattern, tc.target, whole, diff)
		}
	}
}

// Every path that the policy's pattern matches below a target is matched by
// what the pattern is seen as from there.
func FuzzSeenFrom(f *testing.F) {
	f.Add("**/.env", "/data", "a/.env")
	f.Add("/d*/**/x", "/data", "y/x")
	f.Add("**", "/data", "y")
	f.Fuzz(func(t *testing.T, pattern, target, rel string) {
		g, err := policy.ParseGlob(pattern)
		p := target + "/" + rel
		if err != nil || filepath.Clean(target) != target || filepath.Clean(p) != p || !strings.HasPrefix(target, "/") || target == "/" || !g.Match("/home/user", p) {
			return
		}
		rest, whole := seenFrom(pattern, target, "/home/user")
		if whole {
			return
		}
		for _, s := range rest {
			if h, err := policy.ParseGlob("/" + s); err == nil && h.Match("/", "/"+rel) {
				return
			}
		}
		t.Errorf("%q hides %q, but not as %q from %q", pattern, p, rest, target)
	})
}
