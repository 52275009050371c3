// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// A sandbox whose changes are read goes on afterwards, though the reader leaves while the
// guest freezes it; one that cannot ends.
func TestChangesOfWhatGoesOn(t *testing.T) {
	for name, tt := range map[string]struct {
		late, sticks bool
		orders       []string
	}{
		"it freezes late":               {late: true, orders: []string{boot.Freeze, boot.Resume}},
		"late, and it does not go on":   {late: true, sticks: true, orders: []string{boot.Freeze, boot.Resume}},
		"in time, and it does not then": {sticks: true, orders: []string{boot.Freeze, boot.Changes, boot.Resume}},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var orders []string
			before := ""
			conn := guestSays(t, func(o boot.Order) string {
				orders = append(orders, o.Do)
				answer := fmt.Sprintf("{\"id\":%d}\n", o.ID)
				switch {
				case o.Do == boot.Freeze && tt.late:
					leave()
					before, answer = answer, ""
				case o.Do == boot.Resume && tt.sticks:
					answer = before + fmt.Sprintf("{\"id\":%d,\"error\":\"no\"}\n", o.ID)
				case o.Do == boot.Resume:
					answer = before + answer
				}
				return answer
			})
			defer conn.Close()
			m := &microvm.StandIn{}
			if err := m.Instance(conn, "/data").ReadChanges(ctx, "/data", io.Discard); err == nil {
				t.Error("no error")
			}
			if !slices.Equal(orders, tt.orders) || m.Stopped != tt.sticks {
				t.Errorf("ordered %q, ended %v", orders, m.Stopped)
			}
		})
	}
}
