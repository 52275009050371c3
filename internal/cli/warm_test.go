// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/session/persistent"
)

// FuzzWarm: what is taken is within its range, and said once.
func FuzzWarm(f *testing.F) {
	for _, s := range []string{"data=8", "data=2..8", "data:1=0..1", "=1", "a=-1", "a=1..", "a=129", "a=9..2", "a", "a=1=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, err := warm([]string{s})
		if err != nil {
			return
		}
		for name, w := range all {
			if name == "" || w.Min < 0 || w.Max < w.Min || w.Max > 64 {
				t.Errorf("%q gives %q: %+v", s, name, w)
			}
		}
	})
}

func TestWarm(t *testing.T) {
	got, err := warm([]string{"data=8", "app:v2=0..3"})
	if diff := cmp.Diff(map[string]persistent.WarmRange{"data": {Min: 8, Max: 8}, "app:v2": {Min: 0, Max: 3}}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, bad := range [][]string{{"data"}, {"data=x"}, {"data=129"}, {"data=3..2"}, {"data=1", "data=2"}, {"=1"}} {
		if got, err := warm(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
	if n, err := warmMemory("4GiB"); err != nil || n != 4<<30 {
		t.Error(n, err)
	}
	if n, err := warmMemory("0"); err == nil {
		t.Error(n)
	}
}
