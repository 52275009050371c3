// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Refusal is an attempt of the program's to reach something, for people: what
// was refused, and what would allow it.
type Refusal struct {
	sandbox.Connection
	Hint string // empty when nothing would
}

// String is one sentence. Its names are of the sandbox's making, and plain.
func (f Refusal) String() string {
	return fmt.Sprintf("refused %s: %s", target(f.Connection), f.Reason)
}

// target is what a connection was to.
func target(c sandbox.Connection) string {
	host := c.Host
	if host == "" {
		host = c.Address
	}
	if c.Port == 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(c.Port))
}

// network is the way out of one run.
type network struct {
	router *egress.Router
	ledger ledger
	ended  chan error // why it ended before the run did; holds one

	once sync.Once
	use  *sandbox.NetworkUse

	mu   sync.Mutex
	used string // the budget that was used up; guarded by mu
}

// errNetworkLost is why a run is ended whose network is closed: a program that
// waits for it would wait until its time is over.
var errNetworkLost = errors.New("the network was closed")

// connect makes the wire of a plan that has a network, whose first packet starts the
// router.
func (r *run) connect(stateDir string) (*sandbox.Network, error) {
	plan := r.plan.Network
	if plan == nil {
		return nil, nil
	}
	r.noticeInside(plan)
	rules, err := r.rules(plan)
	if err != nil {
		return nil, err
	}
	if err := r.foresee(); err != nil {
		return nil, err
	}
	r.hosts, r.without = plan.Hosts(), plan.Denied()
	if r.reach != nil { // the environment is made for plan, all the same
		if rules, err = r.rulesInForce(); err != nil {
			return nil, err
		}
	}
	return r.startRouter(stateDir, rules, nil)
}

// noticeInside says what entries mean that are often written for this host.
func (r *run) noticeInside(plan *policy.PlanNetwork) {
	for _, text := range plan.Inside() {
		r.notice(fmt.Sprintf("network: inside, %s is the sandbox itself; allow %s for this host's, and connect to that name", text, rule.LocalInstead(text)))
	}
}

// rulesInForce are those of what the network was changed to since the sandbox was
// made, if it was.
func (r *run) rulesInForce() (wire.Rules, error) {
	plan, err := r.inForce()
	if err != nil {
		return wire.Rules{}, err
	}
	r.intent.Network, r.hosts, r.without = plan.String(), plan.Hosts(), plan.Denied()
	if plan == nil {
		return wire.Rules{}, nil
	}
	return r.rules(plan)
}

// startRouter has a router at the end of a wire, from its first packet on: far where
// the sandbox has the other end already.
func (r *run) startRouter(stateDir string, rules wire.Rules, far *os.File) (*sandbox.Network, error) {
	var budget policy.PlanBudget
	if r.plan.Network != nil {
		budget = r.plan.Network.Budget
	}
	n := &network{ended: make(chan error, 1)}
	n.ledger = ledger{journal: r.s.o.Journal, lost: n.unrecorded}
	o := egress.Options{
		Rules: rules,
		Budget: wire.Budget{
			Egress: budget.Egress, Queries: budget.Queries, Connections: budget.Connections, Bandwidth: budget.Bandwidth,
		},
		StateDir: stateDir,
		Wire:     r.caps.Wire,
		Far:      far,
		Record:   func(e wire.Event) { n.ledger.add(e); r.tellRefused(e) },
		Ended:    n.end,
	}
	router, err := egress.Start(o)
	if err != nil {
		return nil, err
	}
	n.router, r.net = router, n
	r.undo.Add(func(context.Context) error {
		n.close()
		n.router.Close()
		return n.ledger.write()
	})
	w := &sandbox.Network{NIC: router.NIC(), Address: egress.Guest, Gateway: egress.Gateway, MTU: egress.MTU}
	if r.caps.Survives {
		w.Far = router.Far()
	}
	return w, nil
}

func entries(rules []policy.PlanRule) []wire.Entry {
	var out []wire.Entry
	for _, r := range rules {
		out = append(out, wire.Entry{Text: r.Text, From: r.From})
	}
	return out
}

// awaitRouter waits until what is sent over the wire is read, by a router that its
// first packet starts: most sandboxes that may use a network do not. One that is to
// have secrets is started at once, so that they are kept nowhere else.
func (r *run) awaitRouter(ctx context.Context) error {
	if len(r.plan.Network.Secrets) > 0 {
		return r.net.router.Ready(ctx)
	}
	return r.net.router.Started()
}

// holds says that the network, where there is one, has not ended by itself.
func (n *network) holds() bool { return n == nil || len(n.ended) == 0 }

// end says why the network ended by itself.
func (n *network) end(budget string, err error) {
	n.mu.Lock()
	n.used = budget
	n.mu.Unlock()
	why := error(exceeded(sandbox.LimitNetwork, usedUpBudget(budget)))
	if budget == "" {
		why = fmt.Errorf("%w: its router ended early: %v", errNetworkLost, err)
	}
	n.stop(why)
}

func usedUpBudget(budget string) string { return "the network budget " + budget + " is used up" }

// settleBudget says of a program that failed by itself, when the network was closed
// under it and before the kill came, what it failed by; of one that did not, that it
// was near. Its network is closed by now.
func (r *run) settleBudget(res *sandbox.Result) {
	if r.net == nil {
		return
	}
	r.net.mu.Lock()
	used := r.net.used
	r.net.mu.Unlock()
	switch {
	case used == "":
	case res.Status == sandbox.StatusError:
		res.Status, res.Resource, res.Reason = sandbox.StatusResourceExceeded, sandbox.LimitNetwork, usedUpBudget(used)
	case res.Status == sandbox.StatusSuccess && !slices.Contains(res.LimitsHit, sandbox.LimitNetwork):
		res.LimitsHit = append(res.LimitsHit, sandbox.LimitNetwork)
	}
}

// unrecorded ends a network whose connections cannot be recorded.
func (n *network) unrecorded(err error) {
	n.stop(fmt.Errorf("%w: %w: %v", errNetworkLost, errUnrecorded, err))
}

func (n *network) stop(why error) {
	select {
	case n.ended <- why:
	default:
	}
}

// watch ends the run when the network ends by itself, until ctx is over.
func (n *network) watch(ctx context.Context, end func(error)) {
	select {
	case why := <-n.ended:
		end(why)
	case <-ctx.Done():
	}
}

// close ends the network, once the sandbox is gone, and says what went through.
// What came more than once is recorded with how often.
func (n *network) close() *sandbox.NetworkUse {
	n.once.Do(func() {
		rep := n.router.Stop()
		for i := range rep.Refused {
			if rep.Refused[i].Count > 1 {
				n.ledger.add(wire.Event{Kind: wire.Refused, Record: &rep.Refused[i]})
			}
		}
		n.use = use(rep)
	})
	return n.use
}

// traffic is what went through the run's network; nil without one.
func (r *run) traffic() *sandbox.NetworkUse {
	if r.net == nil {
		return nil
	}
	return r.net.close()
}

// unrecorded is the last of what went through the run's network.
func (r *run) unrecorded() ([]audit.Connection, error) {
	if r.net == nil {
		return nil, nil
	}
	return r.net.ledger.rest()
}

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

// forRecord is a result as the record of its call has it: what went through its
// network is not listed once more.
func forRecord(res *sandbox.Result) *sandbox.Result {
	if res == nil || res.Network == nil {
		return res
	}
	short, n := *res, *res.Network
	n.Connections, n.Refused, n.Omitted = nil, nil, 0
	short.Network = &n
	return &short
}

func connection(r wire.Record) sandbox.Connection {
	return sandbox.Connection{
		Protocol: string(r.Protocol), Host: r.Host, Address: r.Address, Port: r.Port, Rule: r.Rule, From: r.From, Reason: r.Reason, Method: r.Method, Path: r.Path,
		Sent: r.Sent, Received: r.Received, Started: r.Started, DurationMS: r.Duration.Milliseconds(), Count: r.Count,
	}
}

// tellRefused passes a refused attempt on to who watches.
func (r *run) tellRefused(e wire.Event) {
	if e.Kind == wire.Refused && r.call.OnRefused != nil {
		r.call.OnRefused(Refusal{connection(*e.Record), r.hintFor(e.Record)})
	}
}

// hintFor is the line that would allow what was refused, where one would: an
// address that a name led to is opened by an entry for the address. Of what an entry
// refuses it is where that stands.
func (r *run) hintFor(rec *wire.Record) string {
	if !rec.Open {
		if rec.Rule != "" && ruleFrom(rec.From) != "" {
			return rec.Rule + " in " + rec.From
		}
		return ""
	}
	c := connection(*rec)
	if rec.Method != "" {
		return "add to the policy: network: {allow: [" + rec.Entry() + "]}"
	}
	if c.Address != "" {
		c.Host = ""
	}
	entry := target(c)
	if c.Host == rule.ThisHost && c.Port == 0 {
		entry += ":PORT"
	}
	if name := r.s.o.PolicyName; name != "" {
		return "add to " + name + ": network: {allow: [" + strconv.Quote(entry) + "]}"
	}
	return "allow it with --allow " + entry
}
