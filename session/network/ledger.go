// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress/wire"
)

// ledger writes down what a network does: a record for each connection that
// ended and each sort of attempt that was refused, many in one commit. The router
// bounds how many there are, and its owner does so again (package egress).
//
// What cannot be recorded may not go on: the network is ended then.
type ledger struct {
	journal Journal
	lost    func(error) // told the first fault, once

	writing sync.Mutex // held for a commit, so that records keep their order

	mu      sync.Mutex
	of      audit.Connection // the call whose network it is; nothing is written before it is known
	pending []audit.Connection
	timer   *time.Timer
	err     error
}

// A commit costs a sync of the disk: it is made for a batch, or a moment after
// the first of less.
const (
	ledgerBatch = 128
	ledgerDelay = time.Second
)

// open names the call, whose intent is recorded by now.
func (l *ledger) open(call audit.Connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = call
	if len(l.pending) > 0 {
		l.soon()
	}
}

// add takes one of the router's events. It does not wait for the disk.
func (l *ledger) add(e wire.Event) {
	if e.Record == nil {
		return
	}
	c := audit.Connection{Status: audit.Allowed, Connection: connection(*e.Record)}
	switch {
	case e.Kind == wire.Refused:
		c.Status = audit.Refused
	case e.Record.Reason != "":
		c.Status = audit.Failed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, c)
	l.soon()
}

// soon has what is pending written. The caller holds mu.
func (l *ledger) soon() {
	switch {
	case l.of.Call == "" || l.err != nil:
	case len(l.pending) >= ledgerBatch && l.timer != nil:
		l.timer.Reset(0)
	case l.timer == nil:
		l.timer = time.AfterFunc(ledgerDelay, func() { _ = l.write() })
	}
}

// write records what is pending.
func (l *ledger) write() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	list, err := l.take()
	if len(list) == 0 || err != nil {
		return err
	}
	if err = l.journal.Connections(context.Background(), list); err == nil {
		return nil
	}
	l.mu.Lock()
	l.err = errors.Join(errUnrecorded, err)
	l.mu.Unlock()
	l.lost(err)
	return l.err
}

// rest is what is pending, for who ends the call: it goes into one commit with its
// outcome.
func (l *ledger) rest() ([]audit.Connection, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.take()
}

// take takes out what is pending. The caller holds writing.
func (l *ledger) take() ([]audit.Connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	list := l.pending
	l.pending = nil
	if l.of.Call == "" || l.err != nil {
		return nil, l.err
	}
	for i := range list {
		list[i].Actor, list[i].Account, list[i].Sandbox, list[i].Call = l.of.Actor, l.of.Account, l.of.Sandbox, l.of.Call
	}
	return list, nil
}

// errUnrecorded is why a sandbox is ended whose connections cannot be recorded.
var errUnrecorded = errors.New("what its network does cannot be recorded")
