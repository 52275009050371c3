// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/sandbox"
)

// Secret is an entry of the section secrets, or of --secret: what code has a
// placeholder of, and where the router puts the real value in.
type Secret struct {
	At Pos

	Name   string   // of the variable that holds the placeholder
	From   string   // "env:NAME", "file:PATH" or "login:NAME", on the host
	Hosts  []string // host or *.host, with 443 or another port
	Header string   // Authorization when empty
	Format string   // of the header, with {} for the value; empty keeps what code wrote
	Plain  bool     // over HTTP without TLS, too
	Others bool     // requests to Hosts may have other credentials
	// Optional says that it may be absent: a variable that is not set, a file or a login that
	// is not there.
	Optional bool
}

// PlanSecret is a secret of a plan. Its value is nowhere but in the router.
type PlanSecret struct {
	Name   string   `json:"name"`
	From   string   `json:"from"` // "env:NAME", "file:/PATH" or "login:NAME"
	Hosts  []string `json:"hosts"`
	Header string   `json:"header,omitempty"`
	Format string   `json:"format,omitempty"`
	Plain  bool     `json:"plain_http,omitempty"`
	Others bool     `json:"other_credentials,omitempty"`
	Rule   string   `json:"rule"` // file:line or "--secret"
	// Optional says that it may be absent.
	Optional bool `json:"optional,omitempty"`
}

// Login is the name of the login that p is, if it is one (see rule.LoginOf).
func (p PlanSecret) Login() string {
	name, ok := strings.CutPrefix(p.From, fromLogin)
	if !ok {
		return ""
	}
	return name
}

// The places that a secret is read from.
const (
	fromEnv  = "env:"
	fromFile = "file:"
	// fromLogin is what its agent keeps of an account's login (see rule.Login).
	fromLogin = "login:"
)

// maxSecrets bounds the secrets of a file or a call.
const maxSecrets = 100

const secretHint = "write KEY=env:API_KEY@api.example.com, KEY=file:/run/key@api.example.com, or CLAUDE=login:claude"

// ParseSecret reads the command line's form: NAME=env:VARIABLE@HOST[,HOST], or
// NAME=file:PATH@HOST[,HOST]; or NAME=login:LOGIN, which goes to its own hosts. Errors are
// ErrInvalid with a hint.
func ParseSecret(s string) (Secret, error) {
	name, rest, ok := strings.Cut(s, "=")
	if ok && strings.HasPrefix(rest, fromLogin) {
		out := Secret{Name: name, From: rest}
		out.fill()
		return out, out.check()
	}
	at := strings.LastIndex(rest, "@")
	if !ok || at < 0 {
		return Secret{}, invalid(secretHint, "a secret says where it is from and where it goes")
	}
	out := Secret{Name: name, From: rest[:at], Hosts: strings.Split(rest[at+1:], ",")}
	return out, out.check()
}

// fill gives a login its hosts.
func (s *Secret) fill() {
	if name, ok := strings.CutPrefix(s.From, fromLogin); ok && len(s.Hosts) == 0 {
		l, _ := rule.LoginOf(name)
		s.Hosts = slices.Clone(l.Hosts)
	}
}

// checkLogin wants of a login no more than its name: the rest is settled.
func (s *Secret) checkLogin() error {
	name, ok := strings.CutPrefix(s.From, fromLogin)
	l, _ := rule.LoginOf(name)
	if ok && (!slices.Equal(s.Hosts, l.Hosts) || s.Header != "" || s.Format != "" || s.Plain || s.Others) {
		return invalid(`write {name: CLAUDE, from: "login:claude"}`, "secret %s is a login, which goes to its own hosts in its own way", s.Name)
	}
	return nil
}

// check says whether s can be meant. No message has more of From than its kind:
// who mistakes it for the value has written that there.
func (s *Secret) check() error {
	if err := checkEnvName(s.Name); err != nil {
		return err
	}
	if err := checkFrom(s.From); err != nil {
		return err
	}
	if err := s.checkLogin(); err != nil {
		return err
	}
	if len(s.Hosts) == 0 {
		return invalid("write hosts: [api.example.com]", "secret %s goes nowhere", s.Name)
	}
	for _, h := range s.Hosts {
		if err := checkSecretHost(h); err != nil {
			return err
		}
	}
	if err := rule.CheckSecretHeader(s.header(), s.Format); err != nil {
		return invalid(`write header: Authorization and format: "Bearer {}"`, "secret %s: %v", s.Name, err)
	}
	return nil
}

func checkSecretFrom(s string) error {
	if name, ok := strings.CutPrefix(s, fromEnv); ok {
		return checkEnvName(name)
	}
	if path, ok := strings.CutPrefix(s, fromFile); ok {
		return checkHostPath(path)
	}
	return invalid("write env:NAME or file:PATH; the value itself has no place here", "a secret is from env: or file:")
}

// checkFrom takes a login, too.
func checkFrom(s string) error {
	name, ok := strings.CutPrefix(s, fromLogin)
	if !ok {
		return checkSecretFrom(s)
	}
	if _, ok := rule.LoginOf(name); ok {
		return nil
	}
	return invalid("logins are "+strings.Join(rule.Logins(), ", "), "there is no such login")
}

func checkSecretHost(h string) error {
	if _, err := rule.ParseSecretHost(h, ""); err != nil {
		return invalid(`write api.example.com, or "*.example.com:8443"`, "a secret cannot go to %s: %v", quote(h), err)
	}
	return nil
}

// header is the header in a spelling that compares.
func (s *Secret) header() string {
	if s.Header == "" {
		return "authorization"
	}
	return strings.ToLower(s.Header)
}

// secret reads an entry of secrets.
func (d *decoder) secret(n *yaml.Node) {
	s := Secret{At: at(n)}
	before := len(d.faults)
	d.mapping(n, "a secret", d.secretFields(&s))
	if len(d.faults) > before || n.Kind != yaml.MappingNode {
		return
	}
	s.fill()
	switch err := s.check(); {
	case !hasKey(n, "name"), !hasKey(n, "from"), !hasKey(n, "hosts") && !strings.HasPrefix(s.From, fromLogin):
		d.fault(at(n), `write {name: API_KEY, from: "env:API_KEY", hosts: [api.example.com]}`, "a secret needs name, from and hosts")
	case err != nil:
		d.fault(at(n), sandbox.Hint(err), "%v", err)
	case slices.ContainsFunc(d.file.Secrets, func(o Secret) bool { return o.Name == s.Name }):
		d.fault(at(n), "keep one of them", "there are two secrets %s", s.Name)
	case len(d.file.Secrets) == maxSecrets:
		d.fault(at(n), "", "there are more than %d secrets", maxSecrets)
	default:
		d.file.Secrets = append(d.file.Secrets, s)
	}
}

func (d *decoder) secretFields(s *Secret) []field {
	return []field{
		{"name", func(n *yaml.Node) { s.Name = d.text(n, "name", checkEnvName).V }},
		{"from", func(n *yaml.Node) { s.From = d.text(n, "from", checkFrom).V }},
		{"hosts", func(n *yaml.Node) { s.Hosts = texts(d.texts(n, "hosts", checkSecretHost)) }},
		{"header", func(n *yaml.Node) {
			s.Header = d.text(n, "header", func(h string) error { return rule.CheckSecretHeader(h, "") }).V
		}},
		{"format", func(n *yaml.Node) {
			s.Format = d.text(n, "format", func(f string) error { return rule.CheckSecretHeader("Authorization", f) }).V
		}},
		{"only_our_credentials", func(n *yaml.Node) { v := d.boolean(n, "only_our_credentials"); s.Others = v.Said() && !v.V }},
		{"optional", func(n *yaml.Node) { s.Optional = d.boolean(n, "optional").V }},
		{"plain_http", func(n *yaml.Node) { s.Plain = d.boolean(n, "plain_http").V }},
	}
}

// plan is s as a part of a plan; rule is where it stands.
func (s *Secret) plan(from, rule string) PlanSecret {
	return PlanSecret{Name: s.Name, From: from, Hosts: s.Hosts, Header: s.Header, Format: s.Format, Plain: s.Plain, Others: s.Others, Rule: rule, Optional: s.Optional}
}

// secretFrom is where a secret of the file is from; a relative path starts from
// the file's directory.
func (f *File) secretFrom(s *Secret) string {
	if path, ok := strings.CutPrefix(s.From, fromFile); ok {
		return fromFile + f.hostPath(path)
	}
	return s.From
}

// secrets settles which secrets there are: the file's, as far as their hosts are
// reached, and the operator's. It comes after network and env.
func (d *decision) secrets() *refusal {
	if len(d.call.Secrets) > 0 && !d.call.Operator {
		return refuse("built-in: secrets", "ask the operator to name it in the policy", "only the operator names secrets of this host")
	}
	if len(d.call.Secrets) > maxSecrets {
		return cannotMean("ask for less", "there are more than %d secrets", maxSecrets)
	}
	if f := d.file; f != nil {
		for i := range f.Secrets {
			s := &f.Secrets[i]
			p := s.plan(f.secretFrom(s), f.rule(s.At))
			p.Hosts = d.reached(s.Hosts)
			if len(p.Hosts) < len(s.Hosts) && len(d.call.Network) == 0 && !d.call.NoNetwork {
				return refuse(p.Rule, f.add("network: {allow: ["+strings.Join(s.Hosts, ", ")+"]}"), "secret %s goes where no connection is allowed", s.Name)
			}
			if len(p.Hosts) > 0 {
				if r := d.addSecret(p); r != nil {
					return r
				}
			}
		}
	}
	for i := range d.call.Secrets {
		s := d.call.Secrets[i]
		s.fill()
		if err := s.check(); err != nil {
			return refuseInvalid("--secret", err)
		}
		if path, ok := strings.CutPrefix(s.From, fromFile); ok {
			if r := checkAbsolute(path); r != nil {
				return r
			}
		}
		p := s.plan(s.From, "--secret")
		if r := d.each(func(f *File) *refusal { return f.boundSecret(p) }); r != nil {
			return r
		}
		if len(d.reached(s.Hosts)) < len(s.Hosts) {
			return cannotMean("add --allow "+s.Hosts[0]+":443", "secret %s goes where no connection is allowed", s.Name)
		}
		if r := d.addSecret(p); r != nil {
			return r
		}
	}
	return nil
}

// reached are those of hosts that the plan's network allows.
func (d *decision) reached(hosts []string) (out []string) {
	n := d.plan.Network
	if n == nil {
		return nil
	}
	f := &File{}
	for _, r := range n.Allow {
		f.Network.Allow = append(f.Network.Allow, Value[string]{V: r.Text})
	}
	for _, h := range hosts {
		if r, err := rule.ParseSecretHost(h, ""); err == nil && f.covers(r) {
			out = append(out, h)
		}
	}
	return out
}

// addSecret takes a secret into the plan, under a variable that nothing else
// sets.
func (d *decision) addSecret(p PlanSecret) *refusal {
	if _, set := d.plan.Env[p.Name]; set {
		return refuse(p.Rule, "give one of them another name", "the variable %s is set, and is a secret's", p.Name)
	}
	for _, have := range d.plan.Network.Secrets {
		if have.Name == p.Name {
			return refuse(p.Rule, "drop one of them", "secret %s is already in %s", p.Name, have.Rule)
		}
	}
	n := d.plan.Network
	n.Secrets = append(n.Secrets, p)
	if l, ok := rule.LoginOf(p.Login()); ok {
		n.login(p, l)
	}
	return nil
}

// login holds requests to the hosts of a login to those that it is for, as a layer of its
// own, and closes the hosts that give out tokens.
func (n *PlanNetwork) login(p PlanSecret, l rule.Login) {
	from := "login " + p.Login()
	var layer []PlanWeb
	for _, host := range l.Hosts {
		for _, w := range l.Requests {
			layer = append(layer, PlanWeb{PlanRule: PlanRule{host, from}, Methods: w.Methods, Paths: w.Paths, Closed: true})
		}
	}
	n.Web = append(n.Web, layer)
	for _, host := range l.Elsewhere {
		n.Deny = append(n.Deny, PlanRule{host, from})
	}
}

// boundSecret: a secret of the file is the same one, and goes as far.
func (f *File) boundSecret(p PlanSecret) *refusal {
	for i := range f.Secrets {
		s := &f.Secrets[i]
		if s.Name != p.Name {
			continue
		}
		same := f.secretFrom(s) == p.From && s.header() == (&Secret{Header: p.Header}).header() && s.Format == p.Format && (s.Plain || !p.Plain) && (s.Others || !p.Others)
		if same && !slices.ContainsFunc(p.Hosts, func(h string) bool { return !s.goesTo(h) }) {
			return nil
		}
		return refuse(f.rule(s.At), "change it, or the wish", "secret %s is another one in the policy, or goes to other hosts", p.Name)
	}
	return refuse(f.Name, f.add("secrets: [{name: "+p.Name+", …}]"), "the policy has no secret %s", p.Name)
}

func (s *Secret) goesTo(host string) bool {
	want, err := rule.ParseSecretHost(host, "")
	return err == nil && slices.ContainsFunc(s.Hosts, func(h string) bool {
		r, err := rule.ParseSecretHost(h, "")
		return err == nil && r.Covers(want)
	})
}

// secretsWithin holds a policy file to the system's.
func secretsWithin(sys, f *File) *refusal {
	for i := range f.Secrets {
		s := &f.Secrets[i]
		if r := sys.boundSecret(s.plan(f.secretFrom(s), "")); r != nil {
			return r.by(f, s.At)
		}
	}
	return nil
}

// String is a secret in one phrase, without its value.
func (p PlanSecret) String() string {
	s := p.Name + " from " + p.From + " to " + strings.Join(p.Hosts, ", ")
	if p.Optional {
		s += ", where there is one"
	}
	if p.Plain {
		s += ", without TLS too"
	}
	if p.Others {
		s += ", other credentials allowed"
	}
	return s
}
