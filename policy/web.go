// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// WebRule is an entry of network.allow that says something of requests. Its host
// is in Network.Allow, too.
type WebRule struct {
	At      Pos
	Host    string
	Methods []string
	Paths   []string
	MaxBody int64 // bytes; 0 is no bound
	// MaxRequests is how many requests a sandbox may make by it; 0 is no bound.
	MaxRequests int64
}

// PlanWeb is such an entry in a plan.
type PlanWeb struct {
	PlanRule
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	MaxBody int64    `json:"max_body,omitempty"`
	// MaxRequests is how many requests it lets through.
	MaxRequests int64 `json:"max_requests,omitempty"`
	// Closed says that no entry of a policy's lets through more.
	Closed bool `json:"closed,omitempty"`
}

// rule is what w says of requests.
func (w PlanWeb) rule() rule.Web {
	return rule.Web{Methods: w.Methods, Paths: w.Paths, MaxBody: w.MaxBody, MaxRequests: w.MaxRequests, Closed: w.Closed}
}

// String is the entry in one phrase.
func (w PlanWeb) String() string {
	s := w.Text
	if len(w.Methods) > 0 {
		s += " " + strings.Join(w.Methods, ",")
	}
	if len(w.Paths) > 0 {
		s += " " + strings.Join(w.Paths, " ")
	}
	if w.MaxBody > 0 {
		s += " max_body " + formatSize(w.MaxBody)
	}
	if w.MaxRequests > 0 {
		s += " max_requests " + formatCount(w.MaxRequests)
	}
	return s
}

// webRule reads an entry of network.allow that is a mapping.
func (d *decoder) webRule(n *yaml.Node) {
	w := WebRule{At: at(n)}
	before := len(d.faults)
	d.mapping(n, "a rule of network.allow", d.webFields(&w))
	if len(d.faults) > before {
		return
	}
	if !hasKey(n, "host") {
		d.fault(at(n), "write {host: api.example.com, methods: [GET]}", "a rule of network.allow has no host")
		return
	}
	if _, err := rule.AllowWeb(w.Host, "", rule.Web{Methods: w.Methods, Paths: w.Paths, MaxBody: w.MaxBody, MaxRequests: w.MaxRequests}); err != nil {
		d.fault(at(n), `write {host: api.example.com, methods: [GET], paths: ["/v1/**"], max_body: 1MiB}`, "a rule of network.allow: %v", err)
		return
	}
	d.file.Network.Web = append(d.file.Network.Web, w)
}

func (d *decoder) webFields(w *WebRule) []field {
	any := func(string) error { return nil } // judged together
	return []field{
		{"host", func(n *yaml.Node) { w.Host = d.text(n, "host", checkAllow).V }},
		{"methods", func(n *yaml.Node) { w.Methods = texts(d.texts(n, "methods", any)); d.notEmpty(n, "methods", w.Methods) }},
		{"paths", func(n *yaml.Node) { w.Paths = texts(d.texts(n, "paths", any)); d.notEmpty(n, "paths", w.Paths) }},
		{"max_body", func(n *yaml.Node) {
			d.value(n, "max_body", scalarTextOrInt, func(s string) (err error) { w.MaxBody, err = ParseSize(s); return err })
		}},
		{"max_requests", func(n *yaml.Node) {
			d.value(n, "max_requests", scalarInt, func(s string) (err error) { w.MaxRequests, err = ParseCount(s, 1<<40); return err })
		}},
	}
}

// notEmpty refuses a list that says "none" where it would be read as "all".
func (d *decoder) notEmpty(n *yaml.Node, what string, list []string) {
	if n.Kind == yaml.SequenceNode && len(list) == 0 && len(n.Content) == 0 {
		d.fault(at(n), "drop it to allow all, or deny the host", "%s is empty", what)
	}
}

// allowList reads network.allow: hosts, and rules about requests to them.
func (d *decoder) allowList(n *yaml.Node) {
	list := &d.file.Network.Allow
	*list = []Value[string]{}
	if len(n.Content) > maxRules {
		d.fault(at(n), "", "network.allow has more than %d entries", maxRules)
		return
	}
	d.list(n, "network.allow", func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			before := len(d.file.Network.Web)
			d.webRule(n)
			for _, w := range d.file.Network.Web[before:] {
				*list = append(*list, Value[string]{w.Host, w.At})
			}
		} else if v := d.text(n, "network.allow", checkAllow); v.Said() {
			*list = append(*list, v)
		}
	})
}

// web settles what each layer says of requests, and what hosts whose TLS is ended
// are held to. What a layer says holds whatever a call asks for.
func (d *decision) web(n *PlanNetwork) *refusal {
	for _, f := range d.layers {
		var layer []PlanWeb
		for _, w := range f.Network.Web {
			layer = append(layer, PlanWeb{PlanRule: PlanRule{w.Host, f.rule(w.At)}, Methods: w.Methods, Paths: w.Paths, MaxBody: w.MaxBody, MaxRequests: w.MaxRequests})
		}
		if layer != nil {
			n.Web = append(n.Web, layer)
		}
	}
	if f := d.file; f != nil && f.Network.UpstreamCA.Said() {
		n.UpstreamCA = &PlanRule{f.hostPath(f.Network.UpstreamCA.V), f.rule(f.Network.UpstreamCA.At)}
	}
	path := d.call.UpstreamCA
	if path == "" {
		return nil
	}
	if !d.call.Operator {
		return refuse("built-in: host paths", "ask the operator", "only the operator names paths of this host")
	}
	if r := checkAbsolute(path); r != nil {
		return r
	}
	if r := d.each(func(f *File) *refusal { return f.boundUpstreamCA(path) }); r != nil {
		return r
	}
	n.UpstreamCA = &PlanRule{path, "--upstream-ca"}
	return nil
}

// boundUpstreamCA: whom to trust is not a call's to widen.
func (f *File) boundUpstreamCA(path string) *refusal {
	if v := f.Network.UpstreamCA; v.Said() && f.hostPath(v.V) == path {
		return nil
	}
	return refuse(f.rule(f.Network.UpstreamCA.At), f.add("network: {upstream_ca: "+quote(path)+"}"), "the policy does not trust the authorities in %s", quote(path))
}

// Ended are the names of the hosts whose TLS the router ends.
func (n *PlanNetwork) Ended() []string {
	if n == nil {
		return nil
	}
	var names []string
	add := func(r rule.Rule, err error) {
		if s := r.Base().String(); err == nil && s != "" {
			names = append(names, s)
		}
	}
	for _, layer := range n.Web {
		for _, w := range layer {
			add(rule.AllowWeb(w.Text, "", w.rule()))
		}
	}
	for _, s := range n.Secrets {
		for _, h := range s.Hosts {
			add(rule.ParseSecretHost(h, ""))
		}
	}
	for _, h := range n.Headers {
		add(rule.ParseHeaderHost(h.Host))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Open is what n does not hold back, whatever its entries say; SECURITY.md has it at
// length.
func (n *PlanNetwork) Open() []string {
	if n == nil {
		return nil
	}
	open := []string{
		"an allowed host can pass on what it is sent",
		"timing and volume of allowed traffic tell something",
	}
	ended := n.Ended()
	whole := slices.ContainsFunc(n.Allow, func(r PlanRule) bool {
		rules, err := rule.Allow(r.Text, "")
		return err != nil || slices.ContainsFunc(rules, func(r rule.Rule) bool { return !slices.Contains(ended, r.Base().String()) })
	})
	if slices.ContainsFunc(n.Allow, func(r PlanRule) bool {
		rules, err := rule.Allow(r.Text, "")
		return err == nil && slices.ContainsFunc(rules, rule.Rule.Local)
	}) {
		open = append(open, "what listens on this host's loopback at a named port takes the sandbox for this host")
	}
	if whole {
		open = append(open, "inside TLS that is not ended another host of the same CDN can be asked for (fronting)")
	}
	return open
}

// ended refuses more hosts than one certificate can name, and authorities that would
// be asked about none.
func (d *decision) ended() *refusal {
	n := len(d.plan.Network.Ended())
	if n == 0 && d.call.UpstreamCA != "" {
		return cannotMean("leave it out, or say with --secret, or in a policy file, which host's requests are the router's", "--upstream-ca: there is no host whose TLS the router ends")
	}
	if n > wire.MaxHosts {
		return cannotMean("write *.example.com for many hosts of one domain", "requests to %d hosts are judged, or get a secret or a header; the most is %d", n, wire.MaxHosts)
	}
	return nil
}

// web says what is in force of requests.
func (e *explainer) web(n *PlanNetwork) {
	for _, layer := range n.Web {
		for _, w := range layer {
			e.onWire("network.allow", w.String(), w.From)
		}
	}
	for _, s := range n.Secrets {
		e.onWire("secrets."+s.Name, s.String(), s.Rule)
	}
	for _, h := range n.headerNames() {
		e.onWire("network.headers", h, "request")
	}
	if names := n.Ended(); len(names) > 0 {
		e.add("network.tls", "ended by the router for "+strings.Join(names, ", "), "derived", func(c sandbox.Capabilities) sandbox.Clause {
			return e.can(c.Network, "the level has no network with an allow-list yet")
		})
	}
	if n.UpstreamCA != nil {
		e.onWire("network.upstream_ca", n.UpstreamCA.Text, n.UpstreamCA.From)
	}
}

// conditional says whether an entry of Allow is only the host of a WebRule, which
// is told as such.
func (n *PlanNetwork) conditional(r PlanRule) bool {
	for _, layer := range n.Web {
		for _, w := range layer {
			if w.PlanRule == r {
				return true
			}
		}
	}
	return false
}

// more is what String says besides the hosts.
func (n *PlanNetwork) more() string {
	var b strings.Builder
	for _, layer := range n.Web {
		for _, w := range layer {
			fmt.Fprintf(&b, "; requests: %s", w)
		}
	}
	for _, s := range n.Secrets {
		fmt.Fprintf(&b, "; secret %s to %s", s.Name, strings.Join(s.Hosts, " "))
	}
	for _, h := range n.headerNames() {
		b.WriteString("; header " + h)
	}
	if n.UpstreamCA != nil {
		b.WriteString("; trusts the authorities in " + quote(n.UpstreamCA.Text))
	}
	return b.String()
}
