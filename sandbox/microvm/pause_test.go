// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// A guest that ignores its order, and a caller that gives up, do not keep the processors
// from being stopped.
func TestPauseOfADeafGuest(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := &microvm.StandIn{}
	if err := m.Instance(ours).Pause(ctx); err != nil || !slices.Equal(m.Asked, []string{"pause"}) {
		t.Errorf("%v, %v", m.Asked, err)
	}
}

// obedient is a guest that does what it is ordered.
func obedient(t *testing.T) net.Conn {
	ours, theirs := net.Pipe()
	ended := make(chan struct{})
	t.Cleanup(func() { ours.Close(); <-ended })
	go func() {
		defer close(ended)
		defer theirs.Close()
		for lines := bufio.NewScanner(theirs); lines.Scan(); {
			var o boot.Order
			if json.Unmarshal(lines.Bytes(), &o) != nil { // the line before an order
				continue
			}
			if _, err := fmt.Fprintf(theirs, "{\"id\": %d}\n", o.ID); err != nil {
				return
			}
		}
	}()
	return ours
}

// What can neither be written down nor go on ends: it would hang for ever.
func TestSnapshotThatDoesNotGoOn(t *testing.T) {
	for name, tt := range map[string]struct {
		m    *microvm.StandIn
		end  bool
		want error
	}{
		"it does not go on": {&microvm.StandIn{Sticks: true}, false, sandbox.ErrUnavailable},
		"it writes nothing": {&microvm.StandIn{Stalls: true}, true, microvm.ErrStalled},
	} {
		err := tt.m.Instance(obedient(t)).Snapshot(t.Context(), t.TempDir(), tt.end)
		if !errors.Is(err, tt.want) || !tt.m.Stopped {
			t.Errorf("%s: stopped %v, %v, %v", name, tt.m.Stopped, tt.m.Asked, err)
		}
	}
}
