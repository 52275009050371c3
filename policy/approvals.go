// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/sandbox"
)

// Approvals is the section approvals: who is asked where a rule asks, and how
// long the question stands.
type Approvals struct {
	At       Pos
	Channels Value[[]Value[string]] // not said: DefaultChannels; empty: none
	Timeout  Value[time.Duration]
	Webhook  *Webhook
}

// Webhook is whom to tell that something waits for an answer. It answers
// nothing itself.
type Webhook struct {
	At     Pos
	URL    string
	Secret string // "env:NAME" or "file:PATH"; what is sent is signed with it
}

// Channels are the ways by which people may answer, as package approval has
// them.
func Channels() []string { return []string{"terminal", "cli", "web", "elicitation"} }

// DefaultChannels are those that may answer where no file says: all whose
// approver has a credential, or is at the operator's own terminal. What an
// agent's client answers counts only where it is written.
func DefaultChannels() []string { return []string{"terminal", "cli", "web"} }

// DefaultTimeout is how long a question stands where no file says.
const DefaultTimeout = 10 * time.Minute

const shortestTimeout, longestTimeout = time.Second, 24 * time.Hour

// Asking is a rule that asks.
type Asking struct {
	Rule string // file:line
	What string // a sentence
	// Channels may answer; nil is those of the section.
	Channels []string

	file *File // that asks; nil: it is built in
}

// Question is what people have to be asked before a call may run.
type Question struct {
	Askings  []Asking
	Channels []string // by which an answer counts, not empty
	Timeout  time.Duration
	Webhooks []Webhook // whom to tell; paths of secrets are absolute
}

// approvals are the keys of approvals.
func (d *decoder) approvals() []field {
	a := &d.file.Approvals
	return []field{
		{"channels", func(n *yaml.Node) {
			a.Channels = Value[[]Value[string]]{d.texts(n, "approvals.channels", oneOf(Channels()...)), at(n)}
		}},
		{"timeout", func(n *yaml.Node) {
			a.Timeout.At = d.value(n, "approvals.timeout", scalarText, func(s string) (err error) {
				if a.Timeout.V, err = ParseDuration(s); err == nil && (a.Timeout.V < shortestTimeout || a.Timeout.V > longestTimeout) {
					err = invalid("write between 1s and 24h", "%s is too short or too long", s)
				}
				return err
			})
		}},
		{"webhook", func(n *yaml.Node) {
			w := Webhook{At: at(n)}
			d.mapping(n, "a webhook", d.webhookFields(&w))
			for _, key := range []string{"url", "secret"} {
				if n.Kind == yaml.MappingNode && !hasKey(n, key) {
					d.fault(at(n), `write {url: "https://example.com/hook", secret: "env:WEBHOOK_SECRET"}`, "a webhook has no %s", key)
				}
			}
			a.Webhook = &w
		}},
	}
}

func (d *decoder) webhookFields(w *Webhook) []field {
	return []field{
		{"url", func(n *yaml.Node) { w.URL = d.text(n, "url", checkWebhook).V }},
		{"secret", func(n *yaml.Node) { w.Secret = d.text(n, "secret", checkSecretFrom).V }},
	}
}

// checkWebhook: what waits for approval is told encrypted, or stays here.
func checkWebhook(s string) error {
	const hint = "write https://example.com/hook"
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return invalid(hint, "%s is not an address", quote(s))
	case u.User != nil || u.Fragment != "":
		return invalid(hint, "it has a name, a password or a fragment")
	case u.Scheme == "https":
		return nil
	case u.Scheme != "http":
		return invalid(hint, "%s is not https", quote(u.Scheme))
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && a.IsLoopback() || u.Hostname() == "localhost" {
		return nil
	}
	return invalid(hint, "without TLS only this machine may be told")
}

// maxAskings bounds what is noted of a call in which everything asks: what it
// does is shown in full anyway.
const maxAskings = 20

// ask notes that a rule of f asks: the call needs a yes, and is not refused for
// it. channels may answer; nil is those of f.
func (d *decision) ask(f *File, at Pos, channels []string, format string, args ...any) {
	a := Asking{Rule: f.rule(at), What: strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD"), Channels: channels, file: f}
	same := func(b Asking) bool { return b.file == f && slices.Equal(b.Channels, a.Channels) }
	if len(d.askings) < maxAskings || !slices.ContainsFunc(d.askings, same) {
		d.askings = append(d.askings, a)
	}
}

// question is what has to be asked; nil is nothing. Where no person could
// answer, it is a refusal.
func (d *decision) question() (*Question, *refusal) {
	if len(d.askings) == 0 {
		return nil, nil
	}
	first := d.askings[0]
	if d.call.Terminal {
		return nil, refuse(first.Rule, "run it without a terminal (-t)", "%s, and what is typed at a terminal cannot be looked at beforehand", first.What)
	}
	q := &Question{Askings: d.askings, Timeout: DefaultTimeout}
	said := false
	for _, f := range d.layers {
		a := &f.Approvals
		if a.Timeout.Said() && (!said || a.Timeout.V < q.Timeout) {
			q.Timeout, said = a.Timeout.V, true
		}
		if w := a.Webhook; w != nil {
			q.Webhooks = append(q.Webhooks, Webhook{URL: w.URL, Secret: f.secretFrom(&Secret{From: w.Secret})})
		}
	}
	q.Channels = Channels()
	for _, asking := range d.askings {
		may := d.mayAnswer(asking)
		q.Channels = slices.DeleteFunc(q.Channels, func(c string) bool { return !slices.Contains(may, c) })
	}
	if len(q.Channels) == 0 {
		return nil, refuse(first.Rule, "let the operator name one: approvals: {channels: [cli]}", "%s, and the policy names no channel for the answer", first.What)
	}
	return q, nil
}

// mayAnswer are the channels for one rule: its own, else its file's; and of these
// only what every other file takes.
func (d *decision) mayAnswer(a Asking) []string {
	may := a.Channels
	var bounds [][]string
	for _, f := range d.layers {
		c := f.Approvals.Channels
		switch own := a.file == f || a.file == nil && may == nil; { // a rule that is built in is the first one's
		case !c.Said():
		case own && may == nil:
			may = texts(c.V)
		case !own:
			bounds = append(bounds, texts(c.V))
		}
	}
	if may == nil {
		may = DefaultChannels()
	}
	return slices.DeleteFunc(slices.Clone(may), func(c string) bool {
		return slices.ContainsFunc(bounds, func(b []string) bool { return !slices.Contains(b, c) })
	})
}

// verdict is the Ask in the making.
func (q *Question) verdict(plan Plan) Verdict {
	what := make([]string, len(q.Askings))
	for i, a := range q.Askings {
		what[i] = a.What
	}
	return Verdict{
		Decision: Ask, Rule: q.Askings[0].Rule, Reason: strings.Join(what, "; "),
		Hint: "have it approved by one of: " + strings.Join(q.Channels, ", "), Plan: plan, Question: q,
	}
}

// approvals says who would be asked, where a file says so or asks.
func (e *explainer) approvals() {
	p := e.plan.Approvals
	if p == nil {
		return
	}
	e.add("approvals.channels", strings.Join(p.Channels, ", "), e.from("approvals.channels"), e.always)
	e.add("approvals.timeout", p.Timeout.String(), e.from("approvals.timeout"), e.always)
	for _, w := range p.Webhooks {
		e.add("approvals.webhook", w, e.from("approvals.webhook"), e.always)
	}
}

// PlanApprovals is who is asked under a plan, where anything asks.
type PlanApprovals struct {
	Channels []string      `json:"channels"`
	Timeout  time.Duration `json:"timeout"`
	Webhooks []string      `json:"webhooks,omitempty"`
}

// planApprovals says what the files say of approvals.
func (d *decision) planApprovals() {
	said := false
	p := &PlanApprovals{Timeout: DefaultTimeout, Channels: DefaultChannels()}
	for i, f := range d.layers {
		a := &f.Approvals
		if !a.At.Said() {
			continue
		}
		if a.Channels.Said() {
			have := texts(a.Channels.V)
			if i > 0 && d.plan.From["approvals.channels"] != "" {
				have = slices.DeleteFunc(have, func(c string) bool { return !slices.Contains(p.Channels, c) })
			}
			p.Channels = have
			d.from("approvals.channels", f, a.Channels.At)
		}
		if a.Timeout.Said() && (d.plan.From["approvals.timeout"] == "" || a.Timeout.V < p.Timeout) {
			p.Timeout = a.Timeout.V
			d.from("approvals.timeout", f, a.Timeout.At)
		}
		if a.Webhook != nil {
			p.Webhooks = append(p.Webhooks, a.Webhook.URL)
			d.from("approvals.webhook", f, a.Webhook.At)
		}
		said = true
	}
	if said {
		d.plan.Approvals = p
	}
}

// sum is the section without places.
func (a *Approvals) sum(f *File) any {
	if !a.At.Said() {
		return nil
	}
	s := struct {
		Listed   bool
		Channels []string
		Timeout  time.Duration
		Webhook  []string
	}{Listed: a.Channels.Said(), Channels: texts(a.Channels.V), Timeout: a.Timeout.V}
	if w := a.Webhook; w != nil {
		s.Webhook = []string{w.URL, f.secretFrom(&Secret{From: w.Secret})}
	}
	return s
}

// needsApproval is the error of a call that needs an approval, where no
// question can be put.
func (v Verdict) needsApproval() error {
	return &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Problem: v.Reason + ", and no approver can be asked here", Hint: v.Hint, Rule: v.Rule}
}
