// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress/wire"
)

// keptConnectionsOf is a journal of connections alone.
type keptConnectionsOf struct {
	Journal
	batches [][]audit.Connection
	err     error
}

func (j *keptConnectionsOf) Connections(_ context.Context, list []audit.Connection) error {
	if j.err != nil {
		return j.err
	}
	j.batches = append(j.batches, list)
	return nil
}

func seen(kind wire.EventKind, port int, reason string) wire.Event {
	return wire.Event{Kind: kind, Record: &wire.Record{Protocol: wire.TCP, Host: "host" + strconv.Itoa(port), Port: port, Reason: reason}}
}

// Connections are written a batch at a time, or after a moment, in their order,
// and as the call's whose they are.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &keptConnectionsOf{}
		l := &ledger{journal: j, lost: func(err error) { t.Error(err) }}
		l.add(seen(wire.Connection, 1, ""))
		time.Sleep(2 * ledgerDelay)
		synctest.Wait() // and what it woke is done
		if len(j.batches) != 0 {
			t.Fatal("something was written of a call that nobody knows")
		}
		l.open(audit.Connection{Actor: "uid:0", Sandbox: "sbx", Call: "aud_x"})
		l.add(seen(wire.Connection, 2, "it cannot be reached"))
		l.add(seen(wire.Refused, 3, "no"))
		l.add(wire.Event{Kind: wire.Connection})
		time.Sleep(2 * ledgerDelay)
		synctest.Wait() // and what it woke is done
		if len(j.batches) != 1 || len(j.batches[0]) != 3 {
			t.Fatalf("%+v", j.batches)
		}
		for i, want := range []audit.Status{audit.Allowed, audit.Failed, audit.Refused} {
			if c := j.batches[0][i]; c.Status != want || c.Port != i+1 || c.Call != "aud_x" || c.Actor != "uid:0" || c.Sandbox != "sbx" {
				t.Errorf("%+v, want %s", c, want)
			}
		}
		for i := range ledgerBatch {
			l.add(seen(wire.Connection, i, ""))
		}
		synctest.Wait() // no moment passes
		if len(j.batches) != 2 || len(j.batches[1]) != ledgerBatch {
			t.Errorf("a full batch waits: %d are written", len(j.batches)-1)
		}
		l.add(seen(wire.Connection, 9, ""))
		if err := l.write(); err != nil || len(j.batches) != 3 {
			t.Errorf("%v, %d batches", err, len(j.batches))
		}
		// The last ones go with the outcome.
		l.add(seen(wire.Connection, 10, ""))
		if list, err := l.rest(); err != nil || len(list) != 1 || list[0].Port != 10 || list[0].Call != "aud_x" {
			t.Errorf("%+v, %v", list, err)
		}
		time.Sleep(2 * ledgerDelay)
		if err := l.write(); err != nil || len(j.batches) != 3 {
			t.Errorf("%v, %d batches: what was taken is written again", err, len(j.batches))
		}
	})
}

// What cannot be recorded ends the network, once.
func TestLedgerFailsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Network{ended: make(chan error, 1)}
		n.ledger = ledger{journal: &keptConnectionsOf{err: errors.New("the disk is full")}, lost: n.unrecorded}
		n.ledger.open(audit.Connection{Call: "aud_x"})
		n.ledger.add(seen(wire.Connection, 1, ""))
		time.Sleep(2 * ledgerDelay)
		select {
		case err := <-n.ended:
			if !errors.Is(err, ErrLost) || !errors.Is(err, errUnrecorded) {
				t.Error(err)
			}
		default:
			t.Fatal("it goes on unrecorded")
		}
		n.ledger.add(seen(wire.Connection, 2, ""))
		if err := n.ledger.write(); !errors.Is(err, errUnrecorded) {
			t.Error(err)
		}
		if len(n.ended) != 0 {
			t.Error("it was ended twice")
		}
	})
}
