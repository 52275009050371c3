// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import "testing"

// Memory goes on where everything is that it may rely on, and is refused elsewhere.
func TestMemoryFits(t *testing.T) {
	was := maker{"v1", features([]byte("processor\t: 0\nflags\t\t: sse avx2 fpu\nprocessor\t: 1\nflags\t\t: none\n"))}
	for name, c := range map[string]struct {
		now  maker
		fits bool
	}{
		"the same":        {was, true},
		"more":            {maker{"v1", []string{"avx2", "avx512f", "fpu", "sse"}}, true},
		"less":            {maker{"v1", []string{"fpu", "sse"}}, false},
		"another version": {maker{"v2", was.CPU}, false},
		"nothing":         {maker{}, false},
	} {
		if why := was.misfit(c.now); (why == "") != c.fits {
			t.Errorf("%s: %q", name, why)
		}
	}
	if why := (maker{}).misfit(was); why != "" {
		t.Errorf("one of before it was written down: %q", why)
	}
	if len(was.CPU) != 3 {
		t.Errorf("%q", was.CPU)
	}
}
