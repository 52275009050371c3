// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/caisson-run/caisson/client"
)

// A sandbox that has gone cold does not look like one that runs.
func TestStateInTheTable(t *testing.T) {
	for want, b := range map[string]client.Sandbox{
		"running": {State: "running"}, "paused": {State: "paused"},
		"running, frozen": {State: "running", Cold: "frozen"}, "running, on disk": {State: "running", Cold: "disk"},
	} {
		if got := stateOf(&b); got != want {
			t.Errorf("%+v: %s, want %s", b, got, want)
		}
	}
}
