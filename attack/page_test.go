// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"strings"
	"testing"
)

// What was chosen inside stays text.
func TestPageEscapes(t *testing.T) {
	r := &Report{Isolation: "x<b>", Cases: []Finding{{Case: Case{ID: "F01", Title: "t"}, Verdict: Breach, Reason: `</td><script>alert("1")</script>` + "\xff", Mend: "<img src=x>"}}}
	page := string(Page(r))
	for _, bad := range []string{"<script", "<img", "<b>", "\xff"} {
		if strings.Contains(page, bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if !strings.Contains(page, "0 held, 1 breached") || !strings.Contains(page, "default-src 'none'") {
		t.Error(page)
	}
}
