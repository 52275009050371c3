// SPDX-License-Identifier: Apache-2.0

package router

import (
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// serveDNS answers queries until the resolver is closed.
func (r *Router) serveDNS() {
	a := Answerer{Zone: &r.zone, Allowed: func(n rule.Name) bool { return r.rules.Load().Resolve(n).Allow }}
	b := make([]byte, 2048)
	for {
		n, from, err := r.dns.ReadFrom(b)
		if err != nil {
			return
		}
		if maximum := r.o.Budget.Queries; r.queries.Add(1) > maximum && maximum > 0 {
			r.queries.Add(-1)
			r.at.do(func() { r.exceed("dns_queries") })
			return
		}
		reply, q := a.Answer(b[:n])
		r.recordQuery(q)
		if reply != nil {
			_, _ = r.dns.WriteTo(reply, from) // lost like any datagram
		}
	}
}

// recordQuery records a name that was refused.
func (r *Router) recordQuery(q Query) {
	switch {
	case q.Full:
		r.record.refuse(wire.Record{Protocol: wire.DNS, Reason: "too many names"})
	case q.Allowed || q.Asked == "":
	case q.Name.IsZero():
		r.record.refuse(wire.Record{Protocol: wire.DNS, Host: strconv.QuoteToASCII(q.Asked), Reason: "it is no host name"})
	case strings.HasSuffix(q.Name.String(), ".arpa"): // programs ask for an address's name to print it
	default:
		d := r.rules.Load().Resolve(q.Name)
		r.record.refuse(wire.Record{Protocol: wire.DNS, Host: q.Name.String(), Rule: d.Rule, From: d.From, Reason: d.Reason, Open: d.Open})
	}
}
