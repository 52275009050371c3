// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"strings"
	"testing"
)

// A key that is bound to what this daemon does not have is named, also where it has no name.
func TestKeyOfAnUnknownPolicy(t *testing.T) {
	h := newHome(t, nil)
	for want, k := range map[string]*Key{
		`key ci: its policy "gone"`:           {ID: "kabcdefghij", Name: "ci", Policy: "gone"},
		`key kabcdefghij: its policy "gone"`:  {ID: "kabcdefghij", Policy: "gone"},
		`key kabcdefghij: its profile "gone"`: {ID: "kabcdefghij", Profile: "gone"},
	} {
		if _, err := h.grants.of(k); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
