// SPDX-License-Identifier: Apache-2.0

package idmap

import "testing"

// What is drawn is private, and no two pairs have one id in common.
func TestPrivate(t *testing.T) {
	drawn := map[uint32]bool{}
	for range 10_000 {
		base, err := PrivatePair()
		if err != nil {
			t.Fatal(err)
		}
		if base%2 != 0 || base < PrivateFirst || base+1 >= PrivateFirst+PrivateCount {
			t.Fatalf("a pair begins at %#x", base)
		}
		id, err := PrivateID()
		if err != nil {
			t.Fatal(err)
		}
		if id < PrivateFirst || id >= PrivateFirst+PrivateCount {
			t.Fatalf("id %#x", id)
		}
		drawn[base] = true
	}
	if len(drawn) < 9_900 { // by chance 9 999.6 of 134 million
		t.Errorf("%d of 10000 pairs are different", len(drawn))
	}
}
