// SPDX-License-Identifier: Apache-2.0

package network

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress/wire"
)

// A hint can be followed: no line can be added to a preset.
func TestRefusalHint(t *testing.T) {
	for policy, want := range map[string]string{
		"":             "allow it with --allow good.example.com",
		"/w/p.yaml":    `add to /w/p.yaml: network: {allow: ["good.example.com`,
		"preset agent": "write it down with caisson policy init --preset agent -o FILE, and add to FILE: network: {allow: [",
	} {
		if got := hint(&wire.Record{Open: true, Host: "good.example.com", Port: 443}, policy); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q", policy, got)
		}
	}
}
