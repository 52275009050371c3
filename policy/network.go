// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Network is the section network.
type Network struct {
	At     Pos
	Allow  []Value[string] // see egress/rule; an empty list means nothing
	Deny   []Value[string]
	Budget Budget
	Web    []WebRule
	// UpstreamCA is a file with authorities that hosts may be certified by,
	// besides those that this host trusts.
	UpstreamCA Value[string]
}

// Budget bounds what goes through a network; 0 where nothing is said.
type Budget struct {
	Egress      Value[int64] // bytes that leave
	Queries     Value[int64] // DNS queries
	Connections Value[int64]
	Bandwidth   Value[int64] // bytes per second, each direction
}

// PlanNetwork is the network of a plan.
type PlanNetwork struct {
	Allow  []PlanRule `json:"allow"`
	Deny   []PlanRule `json:"deny,omitempty"`
	Budget PlanBudget `json:"budget"`
	// Web are the entries that say something of requests, by the file that they
	// stand in: each file's count.
	Web        [][]PlanWeb  `json:"web,omitempty"`
	Secrets    []PlanSecret `json:"secrets,omitempty"`
	UpstreamCA *PlanRule    `json:"upstream_ca,omitempty"`
	// Headers are those that requests get which the call asked for. They are shown and
	// recorded by their names alone.
	Headers []wire.Header `json:"-"`
}

// PlanRule is an entry of a list and where it stands.
type PlanRule struct {
	Text string `json:"text"`
	From string `json:"from"` // file:line, "--allow" or "request"
}

// PlanBudget is what is in force of budgets; 0 is no bound.
type PlanBudget struct {
	Egress      int64 `json:"egress,omitempty"`
	Queries     int64 `json:"dns_queries,omitempty"`
	Connections int64 `json:"connections,omitempty"`
	Bandwidth   int64 `json:"bandwidth,omitempty"`
}

// maxRules bounds a list.
const maxRules = 1000

const allowHint = `write a host (pypi.org), "*.example.com", host:port, 10.1.0.0/16:5432, internet, preset:pip, or host.caisson.internal:8080 for this host's loopback`

// checkAllow says whether s is an entry of an allow-list.
func checkAllow(s string) error {
	if _, err := rule.Allow(s, ""); err != nil {
		return invalid(allowHint, "%s allows nothing: %v", quote(s), err)
	}
	w := rule.Word(s)
	if w == "" {
		return nil
	}
	meant := "internet for every public host"
	if slices.Contains(rule.Presets(), w) {
		meant = "preset:" + w
	}
	return invalid("write "+meant+"; a host of your own network that has this name with its port, "+w+":443", "%s is a word, and no host", quote(s))
}

func checkDenied(s string) error {
	if _, err := rule.Deny(s, ""); err != nil {
		return invalid(`write a host, "*.example.com", or a range of addresses`, "%s denies nothing: %v", quote(s), err)
	}
	return nil
}

// network are the keys of network.
func (d *decoder) network() []field {
	n := &d.file.Network
	return []field{
		{"allow", d.allowList},
		{"deny", func(list *yaml.Node) { n.Deny = d.rules(list, "network.deny", checkDenied) }},
		{"budget", func(b *yaml.Node) { d.mapping(b, "network.budget", d.budget()) }},
		{"upstream_ca", func(v *yaml.Node) { n.UpstreamCA = d.text(v, "network.upstream_ca", checkHostPath) }},
	}
}

// rules reads a list of entries.
func (d *decoder) rules(n *yaml.Node, what string, check func(string) error) []Value[string] {
	if len(n.Content) > maxRules {
		d.fault(at(n), "", "%s has more than %d entries", what, maxRules)
		return nil
	}
	return d.texts(n, what, check)
}

func (d *decoder) budget() []field {
	b := &d.file.Network.Budget
	amount := func(name string, s scalar, to *Value[int64], parse func(string) (int64, error)) field {
		return field{name, func(n *yaml.Node) {
			d.value(n, "network.budget."+name, s, func(text string) error {
				v, err := parse(text)
				if err == nil {
					*to = Value[int64]{v, at(n)}
				}
				return err
			})
		}}
	}
	count := func(s string) (int64, error) { return ParseCount(s, 1<<40) }
	return []field{
		amount("egress", scalarText, &b.Egress, ParseSize),
		amount("dns_queries", scalarInt, &b.Queries, count),
		amount("connections", scalarInt, &b.Connections, count),
		amount("bandwidth", scalarText, &b.Bandwidth, ParseBandwidth),
	}
}

// ParseBandwidth reads a rate of a network: bits ("10Mbit/s", in powers of
// 1000), or bytes ("2MiB/s"). It is given back in bytes per second. Errors are
// ErrInvalid with a hint.
func ParseBandwidth(s string) (int64, error) {
	for _, u := range []struct {
		name string
		bits int64
	}{{"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}} {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := ParseCount(digits, 1e6)
		if err != nil {
			return 0, invalid("write a whole number, such as 10Mbit/s", "%s is not a rate", quote(s))
		}
		return n * u.bits / 8, nil
	}
	n, err := ParseRate(s)
	if err != nil {
		return 0, invalid("write 10Mbit/s or 2MiB/s", "%s is not a rate", quote(s))
	}
	return n, nil
}

// network settles what may be reached. A call takes part of what the file
// allows; where no file says anything, the operator's flags do.
func (d *decision) network() *refusal {
	if d.call.NoNetwork {
		if len(d.call.Network) > 0 {
			return cannotMean("drop one of them", "a network and none at all are both asked for")
		}
		return nil
	}
	n := &PlanNetwork{}
	if f := d.file; f != nil {
		for _, v := range f.Network.Allow {
			n.Allow = append(n.Allow, PlanRule{v.V, f.rule(v.At)})
		}
	}
	if len(d.call.Network) > 0 {
		n.Allow = nil
	}
	for _, wish := range d.call.Network {
		if err := checkAllow(wish); err != nil {
			return refuseInvalid("--allow", err)
		}
		entry, r := d.allowed(wish)
		if r != nil {
			return r
		}
		n.Allow = append(n.Allow, PlanRule{entry, "--allow"})
	}
	for _, wish := range d.call.NetworkDeny {
		if err := checkDenied(wish); err != nil {
			return refuseInvalid("network deny", err)
		}
		n.Deny = append(n.Deny, PlanRule{wish, "request"})
	}
	if len(n.Allow) == 0 {
		return nil // none at all
	}
	for _, f := range d.layers {
		for _, v := range f.Network.Deny {
			n.Deny = append(n.Deny, PlanRule{v.V, f.rule(v.At)})
		}
		b := f.Network.Budget
		narrow(&n.Budget.Egress, b.Egress)
		narrow(&n.Budget.Queries, b.Queries)
		narrow(&n.Budget.Connections, b.Connections)
		narrow(&n.Budget.Bandwidth, b.Bandwidth)
	}
	d.plan.Network = n
	return d.web(n)
}

// allowed is the entry that a wish becomes: itself, where every layer has as much.
// Where one has the internet, but not a public address that is wished for, the wish
// is for what the internet has of it: not this host's own.
func (d *decision) allowed(wish string) (entry string, r *refusal) {
	bound := func(entry string) *refusal {
		return d.each(func(f *File) *refusal { return f.boundAllow(entry) })
	}
	if r = bound(wish); r == nil {
		return wish, nil
	}
	if entry = rule.PublicPart(wish); entry != "" && bound(entry) == nil {
		return entry, nil
	}
	return "", r
}

// narrow takes the smaller of two bounds.
func narrow(have *int64, said Value[int64]) {
	if said.Said() && (*have == 0 || said.V < *have) {
		*have = said.V
	}
}

// boundAllow: every rule that the entry stands for is within one of f's.
func (f *File) boundAllow(entry string) *refusal {
	wanted, err := rule.Allow(entry, "")
	if err != nil {
		return refuseInvalid("network.allow", err)
	}
	for _, w := range wanted {
		if !f.covers(w) {
			return refuse(f.rule(f.Network.At), f.add("network: {allow: ["+strconv.Quote(entry)+"]}"), "the policy does not allow connections to %s", quote(entry))
		}
	}
	return nil
}

func (f *File) covers(w rule.Rule) bool {
	for _, v := range f.Network.Allow {
		rules, err := rule.Allow(v.V, "")
		if err != nil {
			return false // was read before
		}
		for _, r := range rules {
			if r.Covers(w) {
				return true
			}
		}
	}
	return false
}

// networkWithin holds a policy file to the system's.
func networkWithin(sys, f *File) *refusal {
	for _, v := range f.Network.Allow {
		if r := sys.boundAllow(v.V); r != nil {
			return r.by(f, v.At)
		}
	}
	if v := f.Network.UpstreamCA; v.Said() {
		if r := sys.boundUpstreamCA(f.hostPath(v.V)); r != nil {
			return r.by(f, v.At)
		}
	}
	return secretsWithin(sys, f)
}

// network says what may be reached, entry by entry.
func (e *explainer) network() {
	n := e.plan.Network
	if n == nil {
		e.add("network", "none", "default", e.always)
		return
	}
	for _, r := range n.Allow {
		if n.conditional(r) {
			continue
		}
		text := r.Text
		if means := rule.Means(text); means != "" {
			text += " (" + means + ")"
		}
		e.onWire("network.allow", text, r.From)
	}
	e.web(n)
	for _, r := range n.Deny {
		e.onWire("network.deny", r.Text, r.From)
	}
	for _, b := range []struct {
		name  string
		value int64
		show  string
	}{
		{"egress", n.Budget.Egress, formatSize(n.Budget.Egress)}, {"dns_queries", n.Budget.Queries, formatCount(n.Budget.Queries)},
		{"connections", n.Budget.Connections, formatCount(n.Budget.Connections)}, {"bandwidth", n.Budget.Bandwidth, formatSize(n.Budget.Bandwidth) + "/s"},
	} {
		if b.value > 0 {
			e.onWire("network.budget."+b.name, b.show, "policy")
		}
	}
}

func (e *explainer) onWire(name, value, from string) {
	e.add(name, value, from, func(c sandbox.Capabilities) sandbox.Clause {
		why := c.NoNetwork.Detail
		if why == "" {
			why = "the level has no network with an allow-list"
		}
		return e.can(c.Network, why)
	})
}

// Inside are the entries of the allow-list that name what is the sandbox's own, and
// open nothing that another entry's name leads to: their author means this host.
func (n *PlanNetwork) Inside() (texts []string) {
	if n == nil {
		return nil
	}
	for _, p := range n.Allow {
		rules, err := rule.Allow(p.Text, "")
		if err != nil || !slices.ContainsFunc(rules, rule.Rule.Inside) {
			continue
		}
		named := slices.ContainsFunc(n.Allow, func(q PlanRule) bool {
			others, err := rule.Allow(q.Text, "")
			return err != nil || slices.ContainsFunc(others, func(r rule.Rule) bool { return !r.Inside() && !r.Base().IsZero() })
		})
		if !rules[0].Base().IsZero() || !named {
			texts = append(texts, p.Text)
		}
	}
	return texts
}

// Hosts are the entries of the allow-list.
func (n *PlanNetwork) Hosts() (texts []string) {
	if n == nil {
		return nil
	}
	for _, r := range n.Allow {
		texts = append(texts, r.Text)
	}
	return texts
}

// Denied are the entries that are taken away from it.
func (n *PlanNetwork) Denied() (texts []string) {
	if n == nil {
		return nil
	}
	for _, r := range n.Deny {
		texts = append(texts, r.Text)
	}
	return texts
}

// String is "none", or what is allowed.
func (n *PlanNetwork) String() string {
	if n == nil {
		return "none"
	}
	return fmt.Sprintf("allow-list: %s%s", strings.Join(n.Hosts(), " "), n.more())
}
