// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/caisson-run/caisson/tool/params"
)

// TestPlain: what is shown of a server's text is what arguments may have, too.
func TestPlain(t *testing.T) {
	for r := range unicode.MaxRune + 1 {
		if r >= 0xd800 && r < 0xe000 {
			continue
		}
		shown := plain(string(r), 100)
		b, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := params.Read(b); err != nil {
			t.Errorf("%U is shown, and no argument may have it: %v", r, err)
		}
		if b, err = json.Marshal("a" + string(r)); err != nil {
			t.Fatal(err)
		}
		if _, err := params.Read(b); err == nil && shown == "" && !unicode.Is(unicode.Co, r) && r != '\r' {
			t.Errorf("%U is not shown, and an argument may have it", r)
		}
	}
}
