// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// What a hint offers can be taken, and every level there is is offered.
func TestOfferedLevels(t *testing.T) {
	drivers := Drivers()
	for _, name := range policy.Offered() {
		level, variant, varied := strings.Cut(name, ":")
		d := drivers[level]
		if v, ok := d.(sandbox.Varied); varied && ok {
			d = v.Variant(variant)
		}
		if d == nil {
			t.Errorf("%s is offered, and is not there", name)
		}
	}
	for name := range drivers {
		if !slices.Contains(policy.Offered(), name) {
			t.Errorf("%s is not offered", name)
		}
	}
}
