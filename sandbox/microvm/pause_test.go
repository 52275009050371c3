// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A guest whose root has taken the place of its first process answers nothing: a pause stops
// its processors all the same, as soon as its time is over.
func TestPauseOfASilentGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = io.Copy(io.Discard, theirs) }()
		m, began := &microvm.StandIn{}, time.Now()
		i := m.Instance(ours)
		if err := i.Pause(t.Context()); err != nil || !slices.Equal(m.Asked, []string{"pause"}) {
			t.Errorf("%v, %v", m.Asked, err)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it was paused after %v", took)
		}
		err := i.Snapshot(t.Context(), t.TempDir(), false)
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "does not stand still") || m.Stopped {
			t.Errorf("a snapshot of it: %v; ended %v", err, m.Stopped)
		}
		ours.Close()
		<-ended
	})
}

// What cannot be written down as it is goes on: an error is all that its caller gets.
func TestSnapshotOfWhatDoesNotStandStill(t *testing.T) {
	for fails, want := range map[string]string{boot.Freeze: "does not stand still", boot.Flush: "does not write its files"} {
		var orders []string
		conn := guestSays(t, func(o boot.Order) string {
			if orders = append(orders, o.Do); o.Do == fails {
				return fmt.Sprintf("{\"id\":%d,\"error\":\"no\"}\n", o.ID)
			}
			return fmt.Sprintf("{\"id\":%d}\n", o.ID)
		})
		m := &microvm.StandIn{}
		err := m.Instance(conn).Snapshot(t.Context(), t.TempDir(), true)
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), want) || sandbox.Hint(err) == "" {
			t.Errorf("%s: %v, want %q", fails, err, want)
		}
		if last := orders[len(orders)-1]; m.Stopped || slices.Contains(m.Asked, "save") || fails == boot.Freeze && last != boot.Resume {
			t.Errorf("%s: ordered %q, asked %q, ended %v", fails, orders, m.Asked, m.Stopped)
		}
	}
}

// A machine that was told to stand still before its disks were written is written down all the
// same where they can be while its sandbox runs: a file system of its own (FUSE) answers only
// then, and --io may make it long. It stands still afterwards, whether that was so or not.
func TestSnapshotOfWhatStandsUnflushed(t *testing.T) {
	for name, tt := range map[string]struct {
		busy, never bool // while there is something to write it does not stand still; that stays
		want        string
	}{
		"it writes when it runs":              {},
		"it stands still when it has":         {busy: true},
		"it writes nothing":                   {never: true, want: "does not write its files"},
		"it writes nothing, and is not still": {busy: true, never: true, want: "does not write its files"},
	} {
		dirty, frozen := true, false
		conn := guestSays(t, func(o boot.Order) string {
			fails := false
			switch o.Do {
			case boot.Freeze:
				fails, frozen = dirty && tt.busy, true
			case boot.Resume:
				frozen = false
			case boot.Flush:
				dirty = dirty && (frozen || tt.never)
				fails = dirty
			}
			if fails {
				return fmt.Sprintf("{\"id\":%d,\"error\":\"no\"}\n", o.ID)
			}
			return fmt.Sprintf("{\"id\":%d}\n", o.ID)
		})
		m := &microvm.StandIn{}
		i := m.Instance(conn)
		if err := i.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := i.Snapshot(t.Context(), t.TempDir(), false)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, sandbox.ErrRunsOn) || !strings.Contains(fmt.Sprint(err), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		last := "pause"
		if tt.want == "" {
			last = "save"
		}
		if got := m.Asked[len(m.Asked)-1]; got != last || !frozen || m.Stopped {
			t.Errorf("%s: asked %q, frozen %v, ended %v", name, m.Asked, frozen, m.Stopped)
		}
		if err := i.Resume(t.Context()); err != nil || frozen {
			t.Errorf("%s: resumed: %v", name, err)
		}
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
