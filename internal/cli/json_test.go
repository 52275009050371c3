// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestJSONText: what a terminal would obey, or not show, is printed as an escape, and
// reads as the same value.
func TestJSONText(t *testing.T) {
	const text = "a\u009b31m\x7f\x1b]0;x\a\u202e\u200b\U000e0041 é漢😀"
	var out bytes.Buffer
	if err := json.NewEncoder(jsonText{&out}).Encode(text); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSuffix(out.String(), "\n")
	for _, r := range line {
		if !unicode.IsPrint(r) {
			t.Errorf("%U is in %q", r, line)
		}
	}
	if !strings.Contains(line, "é漢😀") {
		t.Errorf("text is escaped, too: %s", line)
	}
	var again string
	if err := json.Unmarshal(out.Bytes(), &again); err != nil || again != text {
		t.Errorf("reads as %q, %v", again, err)
	}
}
