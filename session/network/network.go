// SPDX-License-Identifier: Apache-2.0

// Package network is the way out of one sandbox: a router that lets through what the
// policy allows, the secrets that it puts into requests, and the record of what went
// through.
package network

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"context"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Journal commits what networks did. A network that cannot be recorded is closed.
type Journal interface {
	Connections(ctx context.Context, list []audit.Connection) error
}

// Options say what network is wanted.
type Options struct {
	// Rules are what it lets through; see [Credentials.Rules].
	Rules  wire.Rules
	Budget policy.PlanBudget
	// StateDir is the sandbox's run directory, and Caps what its level has.
	StateDir string
	Caps     sandbox.Capabilities
	// Closed is for a sandbox without a network: nothing is let through, and what was tried
	// is told and recorded. Rules are empty, and how the router ends is of no consequence.
	Closed bool
	// Far is the router's end of a wire of which the sandbox has the other end already;
	// nil makes a wire. Start closes it when it fails.
	Far     *os.File
	Journal Journal
	// PolicyName is the file that hints name; empty is none.
	PolicyName string
	// Refused, when set, gets attempts to reach what is not allowed, and allowed names that
	// have no address. It must not block.
	Refused func(Refusal)
	// Renew, when set, gives another value of a secret ([Credentials.Renew]).
	Renew func(name string, serial int64) wire.Renewal
}

// Network is the router of one sandbox, from its first packet on. It may be used from
// many goroutines. The caller must call Close.
type Network struct {
	// Wire is what the driver is handed.
	Wire *sandbox.Network

	closed bool
	router *egress.Router
	ledger ledger
	ended  chan error // why it ended before the sandbox did; holds one

	once sync.Once
	use  *sandbox.NetworkUse

	mu   sync.Mutex
	used string // the budget that was used up
}

// ErrLost is why a run is ended whose network is closed: a program that waits for it
// would wait until its time is over.
var ErrLost = errors.New("the network was closed")

// BudgetError is why a network is closed whose budget is used up.
type BudgetError struct{ Budget string }

// Error names the budget.
func (e *BudgetError) Error() string { return "the network budget " + e.Budget + " is used up" }

// maxUnresolved bounds the names without an address that are told.
const maxUnresolved = 64

// Start makes the wire, whose first packet starts the router.
func Start(o Options) (*Network, error) {
	n := &Network{closed: o.Closed, ended: make(chan error, 1)}
	n.ledger = ledger{journal: o.Journal, lost: n.unrecorded}
	unresolved := map[string]bool{}
	record := func(e wire.Event) {
		n.ledger.add(e)
		switch {
		case o.Refused == nil || e.Record == nil:
		case e.Kind == wire.Refused:
			o.Refused(Refusal{Connection: connection(*e.Record), Hint: hint(e.Record, o.PolicyName)})
		case e.Record.Unresolved && len(unresolved) < maxUnresolved && !unresolved[e.Record.Host]:
			unresolved[e.Record.Host] = true
			o.Refused(Refusal{Connection: connection(*e.Record), Failed: true})
		}
	}
	router, err := egress.Start(egress.Options{
		Rules: o.Rules, Closed: o.Closed,
		Budget: wire.Budget{
			Egress: o.Budget.Egress, Queries: o.Budget.Queries, Connections: o.Budget.Connections, Bandwidth: o.Budget.Bandwidth,
		},
		StateDir: o.StateDir, Wire: o.Caps.Wire, Far: o.Far, Record: record, Renew: o.Renew, Ended: n.end,
	})
	if err != nil {
		if o.Far != nil {
			o.Far.Close()
		}
		return nil, err
	}
	n.router = router
	n.Wire = &sandbox.Network{NIC: router.NIC(), Address: egress.Guest, Gateway: egress.Gateway, MTU: egress.MTU}
	if o.Caps.Survives {
		n.Wire.Far = router.Far()
	}
	return n, nil
}

// Open names the call whose network it is: its intent is recorded by now, and from here
// on what goes through is.
func (n *Network) Open(call audit.Connection) {
	if n != nil {
		n.ledger.open(call)
	}
}

// Of is the call that Open named.
func (n *Network) Of() audit.Connection {
	n.ledger.mu.Lock()
	defer n.ledger.mu.Unlock()
	return n.ledger.of
}

// Started says what is against the router's start, as far as that is known: its first
// packet starts it.
func (n *Network) Started() error {
	if n.closed {
		return nil
	}
	return n.router.Started()
}

// Ready starts the router and waits for it.
func (n *Network) Ready(ctx context.Context) error { return n.router.Ready(ctx) }

// Used tells the router that a program has started, which may want a network once it has
// run for longer than one that only looks at something.
func (n *Network) Used(w sandbox.Wire) {
	if !n.closed {
		n.router.Foresee(shortProgram(w))
	}
}

// Change puts other rules in force. What they do not allow is closed when it returns;
// other connections stay. After an error the network is closed: it is not known what is
// in force.
func (n *Network) Change(ctx context.Context, rules wire.Rules) error {
	err := n.router.Change(ctx, rules)
	if err != nil {
		n.Fail(err)
	}
	return err
}

// Live is how many connections go through it now. A nil Network has none.
func (n *Network) Live(ctx context.Context) (int, error) {
	if n == nil {
		return 0, nil
	}
	return n.router.Live(ctx)
}

// Fail ends the network as if its router had, because of err.
func (n *Network) Fail(err error) { n.end("", err) }

// Holds says that the network has not ended by itself. A nil Network holds.
func (n *Network) Holds() bool { return n == nil || len(n.ended) == 0 }

// end says why the network ended by itself.
func (n *Network) end(budget string, err error) {
	n.mu.Lock()
	n.used = budget
	n.mu.Unlock()
	if budget != "" {
		n.stop(&BudgetError{budget})
		return
	}
	n.stop(fmt.Errorf("%w: its router ended early: %v", ErrLost, err))
}

// unrecorded ends a network whose connections cannot be recorded.
func (n *Network) unrecorded(err error) {
	n.stop(fmt.Errorf("%w: %w: %v", ErrLost, errUnrecorded, err))
}

func (n *Network) stop(why error) {
	if n.closed {
		return // there is nothing to lose
	}
	select {
	case n.ended <- why:
	default:
	}
}

// Exhausted is the budget that was used up; nil when none was.
func (n *Network) Exhausted() *BudgetError {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used == "" {
		return nil
	}
	return &BudgetError{n.used}
}

// Watch calls end with a *BudgetError or an ErrLost when the network ends by itself. It
// returns then, or when ctx ends.
func (n *Network) Watch(ctx context.Context, end func(error)) {
	select {
	case why := <-n.ended:
		end(why)
	case <-ctx.Done():
	}
}

// Use ends the network, once the sandbox is gone, and says what went through. What came
// more than once is recorded with how often.
func (n *Network) Use() *sandbox.NetworkUse {
	if n == nil {
		return nil
	}
	n.once.Do(func() {
		rep := n.router.Stop()
		for i := range rep.Refused {
			if rep.Refused[i].Count > 1 {
				n.ledger.add(wire.Event{Kind: wire.Refused, Record: &rep.Refused[i]})
			}
		}
		if !n.closed || rep.Totals.Refused > 0 {
			n.use = use(rep)
		}
	})
	return n.use
}

// Rest is what is not recorded yet, for who ends the call: it goes into one commit with
// the outcome.
func (n *Network) Rest() ([]audit.Connection, error) {
	if n == nil {
		return nil, nil
	}
	return n.ledger.rest()
}

// Close ends the network, and records what is left.
func (n *Network) Close() error {
	n.Use()
	n.router.Close()
	return n.ledger.write()
}
