// SPDX-License-Identifier: Apache-2.0

package session

import "testing"

// The clock of rates goes on, and says which boot it is of.
func TestSinceBoot(t *testing.T) {
	if a, b := sinceBoot(), sinceBoot(); a.Boot != b.Boot || a.Boot == "" || b.Since < a.Since {
		t.Errorf("%v, %v", a, b)
	}
}
