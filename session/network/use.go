// SPDX-License-Identifier: Apache-2.0

package network

import (
	"time"

	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// What is kept of one run in its result; each is a record of its own besides.
const (
	keptConnections = 500
	keptRefused     = 200
)

func use(rep egress.Report) *sandbox.NetworkUse {
	u := &sandbox.NetworkUse{
		Sent: rep.Totals.Sent, Received: rep.Totals.Received, Queries: rep.Totals.Queries,
		Connected: rep.Totals.Connections, Denied: rep.Totals.Refused, Incomplete: rep.Incomplete, Unrecorded: rep.Totals.Unrecorded,
	}
	for _, c := range rep.Connections[:min(len(rep.Connections), keptConnections)] {
		u.Connections = append(u.Connections, connection(c))
	}
	for _, c := range rep.Refused[:min(len(rep.Refused), keptRefused)] {
		u.Refused = append(u.Refused, connection(c))
	}
	u.Omitted = rep.Omitted + int64(len(rep.Connections)-len(u.Connections)+len(rep.Refused)-len(u.Refused))
	return u
}

func connection(r wire.Record) sandbox.Connection {
	return sandbox.Connection{
		Protocol: string(r.Protocol), Host: r.Host, Address: r.Address, Port: r.Port, Rule: r.Rule, From: r.From, Reason: r.Reason, Method: r.Method, Path: r.Path,
		Sent: r.Sent, Received: r.Received, Started: r.Started, DurationMS: r.Duration.Milliseconds(), Count: r.Count,
	}
}

// shortProgram is how long a program has run that may be expected to have a use for its
// network, if it has one: those that only look at something are over by then, and no
// router is started for them. A kernel inside, which reads the packets itself, takes 6 to
// 11 ms to start a program and to end: so long lasted /bin/true, and less than 2 without.
func shortProgram(w sandbox.Wire) time.Duration {
	if w == sandbox.WirePackets {
		return 12 * time.Millisecond
	}
	return 4 * time.Millisecond
}
