// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-run/caisson/egress/rule"
)

// ttl is how long an answer holds, in seconds. The address stays the name's;
// whether it may be reached is decided at each connection.
const ttl = 60

// maxQuery is how long a query may be, in bytes. One question and an EDNS
// record need about 300.
const maxQuery = 1232

// Query is what was asked, for records. Asked is "" when that could not be
// read.
type Query struct {
	Name    rule.Name
	Asked   string // as it was written, at most 255 bytes, for names that are none
	Allowed bool
	// Full says that the name was allowed and there was no address left.
	Full bool
}

// Answerer answers queries out of a Zone.
type Answerer struct {
	Zone *Zone
	// Allowed says which names there are. It must not be nil.
	Allowed func(rule.Name) bool
}

// Answer answers one DNS message, which comes from code that may be hostile.
// The reply is nil when there is none to give: to what is no query.
func (r *Answerer) Answer(query []byte) (reply []byte, q Query) {
	if len(query) > maxQuery {
		return nil, q
	}
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil, q
	}
	if h.OpCode != 0 {
		return buildReply(h, dnsmessage.RCodeNotImplemented, nil, netip.Addr{}), q
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 || h.Truncated {
		return buildReply(h, dnsmessage.RCodeFormatError, nil, netip.Addr{}), q
	}
	question := questions[0]
	q.Asked = question.Name.String()
	if question.Class != dnsmessage.ClassINET {
		return buildReply(h, dnsmessage.RCodeRefused, &question, netip.Addr{}), q
	}
	q.Name, err = rule.ParseName(strings.TrimSuffix(q.Asked, "."))
	if err != nil || !r.Allowed(q.Name) {
		return buildReply(h, dnsmessage.RCodeNameError, &question, netip.Addr{}), q
	}
	q.Allowed = true
	// An address of IPv4 is all there is. No answer to HTTPS and SVCB queries
	// means no keys for an encrypted ClientHello, which would hide the name.
	if question.Type != dnsmessage.TypeA {
		return buildReply(h, dnsmessage.RCodeSuccess, &question, netip.Addr{}), q
	}
	a := r.Zone.Address(q.Name)
	if !a.IsValid() {
		q.Full = true
		return buildReply(h, dnsmessage.RCodeServerFailure, &question, netip.Addr{}), q
	}
	return buildReply(h, dnsmessage.RCodeSuccess, &question, a), q
}

// buildReply makes a reply; a that is not valid means that there is no record.
func buildReply(h dnsmessage.Header, code dnsmessage.RCode, q *dnsmessage.Question, a netip.Addr) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: h.ID, OpCode: h.OpCode, Response: true, Authoritative: true,
		RecursionDesired: h.RecursionDesired, RecursionAvailable: true, RCode: code,
	}}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	if a.IsValid() {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: ttl},
			Body:   &dnsmessage.AResource{A: a.As4()},
		}}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil // a name that cannot be written again
	}
	return reply
}
