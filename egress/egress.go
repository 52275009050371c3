// SPDX-License-Identifier: Apache-2.0

// Package egress is a sandbox's way out, as its owner sees it: it hands the
// sandbox's end of a wire to a level of isolation, starts the router in a process
// of its own when the first packet comes, or is to be expected, and keeps what it tells.
//
//	egress/rule    what an allow-list lets through, and one spelling of a host name
//	egress/router  the TCP/IP stack that decides about every connection, as a process
//	egress/ca      the authority by whose certificates a router ends TLS
//	egress/wire    what the router and its owner say to each other
package egress

import (
	"net/netip"
	"os"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// The addresses at the two ends of every sandbox's wire. They are the same for
// all: no wire is connected to another. They lie in the range that made-up
// addresses come from (see router.Pool).
var (
	Gateway = netip.MustParseAddr("198.18.0.1") // the router, and the resolver
	Guest   = netip.MustParseAddr("198.18.0.2")
)

// MTU is how long a packet on the wire may be, in bytes. It is a message on a
// socket, no frame on a cable: long ones cost less per byte.
const MTU = 32 << 10

// Options say what a router lets through and who is told.
type Options struct {
	Rules  wire.Rules
	Budget wire.Budget
	// Closed is for a sandbox without a network: the router lets nothing through, ever, and
	// tells what was tried. Rules are empty.
	Closed bool
	// StateDir is the directory of the sandbox that this is the network of; the
	// router's program may be kept beside it (internal/linux/engine).
	StateDir string
	// Wire is how the level takes the sandbox's end.
	Wire sandbox.Wire
	// Far, when not nil, is the router's end of a wire whose other end a sandbox has
	// already (Router.Far of the router before). It is the router's from then on, and
	// NIC is nil.
	Far *os.File
	// Record is told each connection that ended and each sort of attempt that
	// was refused, one after the other, as far as wire.RecordsAtOnce and
	// wire.RecordEvery go. It may be nil.
	Record func(wire.Event)
	// Renew gives another value of a secret that has a Serial, in the place of the one with
	// that. It may take its time, and be called for several secrets at once. It may be nil.
	Renew func(name string, serial int64) wire.Renewal
	// Ended is called once, when the router ends before Close, or a budget is
	// used up: the network is closed then. It may be nil.
	Ended func(budget string, err error)
}

// Report is what went through a wire.
type Report struct {
	Connections []wire.Record
	Refused     []wire.Record // each sort once, with Count
	Totals      wire.Totals
	// Omitted is how many records are in neither list.
	Omitted int64
	// Incomplete says that the router ended without a last word.
	Incomplete bool
}
