// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckID(t *testing.T) {
	for _, n := range []int{16, 26, 64} {
		if err := CheckID("sbx_" + strings.Repeat("aZ09", n/4+1)[:n]); err != nil {
			t.Error(err)
		}
	}
	good := strings.Repeat("a", 20)
	for _, id := range []string{
		"", "sbx_", good, "SBX_" + good, "sbx-" + good, " sbx_" + good, "sbx_" + good + "\n", "sbx_" + good[:15], "sbx_" + strings.Repeat("a", 65),
		"sbx_" + good + "_", "sbx_" + good + "-", "sbx_" + good + ".", "sbx_" + good + "/../x", "sbx_" + good + "\x00", "sbx_" + good + "é", "sbx_" + good + "١", "sbx_" + good + "\xff",
	} {
		if err := CheckID(id); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
