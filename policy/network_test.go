// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

func parsed(t *testing.T, name, yaml string) *File {
	t.Helper()
	if yaml == "" {
		return nil
	}
	f, err := Parse("/p/"+name, []byte("version: 1\n"+yaml+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The matrix of who may allow what: what is in force, or the rule that refuses.
func TestNetworkLayers(t *testing.T) {
	const list = "network: {allow: [pypi.org, '*.example.com:443', '10.1.0.0/16:5432'], deny: [x.example.com], budget: {egress: 50MiB}}"
	for name, c := range map[string]struct {
		system, file string
		call         []string
		guest        bool // not the operator
		want         string
	}{
		"nothing is asked for":              {"", "", nil, false, "none"},
		"the operator's flag":               {"", "", []string{"pypi.org"}, false, "pypi.org --allow"},
		"somebody else's wish":              {"", "", []string{"pypi.org"}, true, "refused built-in: defaults"},
		"a file":                            {"", list, nil, false, "pypi.org /p/file:2, *.example.com:443 /p/file:2, 10.1.0.0/16:5432 /p/file:2; not x.example.com; egress 52428800"},
		"less than the file":                {"", list, []string{"a.example.com:443"}, false, "a.example.com:443 --allow; not x.example.com; egress 52428800"},
		"another port than the file's":      {"", list, []string{"a.example.com"}, false, "refused /p/file:2"},
		"another host than the file's":      {"", list, []string{"evil.test"}, false, "refused /p/file:2"},
		"this host within the internet":     {"", "network: {allow: [internet]}", []string{"host.caisson.internal:80"}, false, "refused /p/file:2"},
		"this host within its own entry":    {"", "network: {allow: ['host.caisson.internal:80']}", []string{"host.caisson.internal:80"}, false, "host.caisson.internal:80 --allow"},
		"an address of the internet":        {"", "network: {allow: [internet]}", []string{"8.8.8.8/32:*"}, true, "public:8.8.8.8/32:* --allow"},
		"a range of it, the system's deny":  {"network: {allow: [internet], deny: [8.8.8.8]}", "network: {allow: [internet]}", []string{"8.8.8.0/24"}, true, "public:8.8.8.0/24 --allow; not 8.8.8.8"},
		"an address as the file has it":     {"", "network: {allow: [internet, '8.8.8.8:*']}", []string{"8.8.8.8/32:*"}, true, "8.8.8.8/32:* --allow"},
		"a narrower system has it so":       {"network: {allow: [internet]}", "network: {allow: ['public:8.8.8.0/24:*']}", []string{"8.8.8.8/32:*"}, true, "public:8.8.8.8/32:* --allow"},
		"an address of a port of it":        {"", "network: {allow: ['internet:443']}", []string{"8.8.8.8:*"}, true, "refused /p/file:2"},
		"a private address of the internet": {"", "network: {allow: [internet]}", []string{"10.0.0.1:*"}, true, "refused /p/file:2"},
		"credentials of the internet":       {"", "network: {allow: [internet]}", []string{"169.254.169.254:80"}, true, "refused /p/file:2"},
		"a range that holds some":           {"", "network: {allow: [internet]}", []string{"168.0.0.0/8"}, true, "refused /p/file:2"},
		"NAT64 of the internet":             {"", "network: {allow: [internet]}", []string{"[64:ff9b::808:808]:443"}, true, "refused /p/file:2"},
		"an address beside names":           {"", list, []string{"8.8.8.8"}, true, "refused /p/file:2"},
		"a file's address in the internet":  {"network: {allow: [internet]}", "network: {allow: [8.8.8.8]}", nil, false, "refused /p/system:2"},
		"an address of nobody's":            {"", "", []string{"8.8.8.8"}, true, "refused built-in: defaults"},
		"the internet beyond the file":      {"", list, []string{"internet"}, false, "refused /p/file:2"},
		"a wider range than the file's":     {"", list, []string{"10.0.0.0/8:5432"}, false, "refused /p/file:2"},
		"a file without a network":          {"", "best_effort: false", []string{"pypi.org"}, false, "refused /p/file"},
		"an empty list":                     {"", "network: {allow: []}", []string{"pypi.org"}, false, "refused /p/file:2"},
		"an entry that allows nothing":      {"", "", []string{"*"}, false, "refused built-in: valid requests"},
		"a preset within a preset":          {"", "network: {allow: ['preset:pip']}", []string{"preset:pip"}, false, "preset:pip --allow"},
		"a preset beyond a host":            {"", "network: {allow: [pypi.org]}", []string{"preset:pip"}, false, "refused /p/file:2"},
		"the system's list grants nothing":  {list, "", nil, false, "none"},
		"the system's list bounds a flag":   {list, "", []string{"evil.test"}, false, "refused /p/system:2"},
		"the system's list allows a flag":   {list, "", []string{"pypi.org"}, false, "pypi.org --allow; not x.example.com; egress 52428800"},
		"a system without a network":        {"best_effort: false", "", []string{"pypi.org"}, false, "refused /p/system"},
		"a file beyond the system":          {list, "network: {allow: [evil.test]}", nil, false, "refused /p/system:2"},
		"a file within the system":          {list, "network: {allow: [pypi.org], deny: [y.test], budget: {egress: 1MiB}}", nil, false, "pypi.org /p/file:2; not x.example.com y.test; egress 1048576"},
		"a larger budget than the system's": {list, "network: {allow: [pypi.org], budget: {egress: 1GiB}}", nil, false, "pypi.org /p/file:2; not x.example.com; egress 52428800"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(Options{System: parsed(t, "system", c.system), File: parsed(t, "file", c.file)})
			if err != nil {
				t.Fatal(err)
			}
			v := p.Decide(&Call{Kind: RunCommand, Argv: []string{"true"}, Operator: !c.guest, Network: c.call})
			if got := inForce(v); got != c.want {
				t.Errorf("%s, want %s (%s; %s)", got, c.want, v.Reason, v.Hint)
			}
		})
	}
}

// A call may want less than it is granted.
func TestNetworkLess(t *testing.T) {
	const list = "network: {allow: [internet], deny: [x.example.com]}"
	for name, c := range map[string]struct {
		file string
		call Call
		want string
	}{
		"none of it":                {list, Call{NoNetwork: true}, "none"},
		"none of nothing":           {"", Call{NoNetwork: true}, "none"},
		"none and some":             {list, Call{NoNetwork: true, Network: []string{"pypi.org"}}, "refused built-in: valid requests"},
		"not all of it":             {list, Call{NetworkDeny: []string{"8.8.8.8/32", "evil.test"}}, "internet /p/file:2; not 8.8.8.8/32 evil.test x.example.com"},
		"some, and not all of it":   {list, Call{Network: []string{"*.a.test"}, NetworkDeny: []string{"b.a.test"}}, "*.a.test --allow; not b.a.test x.example.com"},
		"less than nothing":         {"", Call{NetworkDeny: []string{"evil.test"}}, "none"},
		"what denies nothing":       {list, Call{NetworkDeny: []string{"https://evil.test"}}, "refused built-in: valid requests"},
		"too many of its own rules": {list, Call{NetworkDeny: make([]string, maxWishes+1)}, "refused built-in: valid requests"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(Options{File: parsed(t, "file", c.file)})
			if err != nil {
				t.Fatal(err)
			}
			c.call.Kind, c.call.Argv = RunCommand, []string{"true"}
			v := p.Decide(&c.call)
			if got := inForce(v); got != c.want {
				t.Errorf("%s, want %s (%s; %s)", got, c.want, v.Reason, v.Hint)
			}
		})
	}
}

func inForce(v Verdict) string {
	n := v.Plan.Network
	switch {
	case v.Decision != Allow:
		return "refused " + v.Rule
	case n == nil:
		return "none"
	}
	var allow, deny []string
	for _, r := range n.Allow {
		allow = append(allow, r.Text+" "+r.From)
	}
	for _, r := range n.Deny {
		deny = append(deny, r.Text)
	}
	s := strings.Join(allow, ", ")
	if len(deny) > 0 {
		s += "; not " + strings.Join(deny, " ")
	}
	if n.Budget.Egress > 0 {
		s += "; egress " + formatCount(n.Budget.Egress)
	}
	return s
}

func TestParseBandwidth(t *testing.T) {
	for s, want := range map[string]int64{"10Mbit/s": 1250000, "1kbit/s": 125, "2Gbit/s": 250000000, "2MiB/s": 2 << 20} {
		if got, err := ParseBandwidth(s); got != want || err != nil {
			t.Errorf("%s is %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "10", "10Mbit", "Mbit/s", "-1Mbit/s", "1.5Mbit/s", "10mbit/s", "10Mb/s", "0Mbit/s"} {
		if got, err := ParseBandwidth(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
}

// A level without such a network is refused by the entry's name.
func TestExplainNetwork(t *testing.T) {
	p, err := New(Options{File: parsed(t, "file", "network: {allow: [pypi.org, 'preset:pip'], deny: [a.test], budget: {bandwidth: 8Mbit/s}}")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range Explain(p, map[string]sandbox.Capabilities{"has": {Network: true}, "lacks": {}}) {
		if strings.HasPrefix(c.Name, "network") {
			got = append(got, strings.Join([]string{c.Name, c.Value, c.From, string(c.Levels["has"].Enforcement), string(c.Levels["lacks"].Enforcement)}, " "))
		}
	}
	want := "network.allow pypi.org /p/file:2 enforced refused\nnetwork.allow preset:pip (pypi.org:443 files.pythonhosted.org:443) /p/file:2 enforced refused\nnetwork.deny a.test /p/file:2 enforced refused\nnetwork.budget.bandwidth 1MB/s policy enforced refused"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("%s", s)
	}
}

// The posture says what stays open; fronting does not where all TLS is ended.
func TestNetworkOpen(t *testing.T) {
	for text, want := range map[string]int{
		"network: {allow: [a.test]}": 3, "network: {allow: [internet]}": 3, "network: {allow: [\"preset:pip\"]}": 3,
		"network: {allow: [\"host.caisson.internal:80\"]}":                                                           4,
		"network: {allow: [{host: a.test, methods: [GET]}]}":                                                         2,
		"network: {allow: [{host: a.test, methods: [GET]}, b.test]}":                                                 3,
		"network: {allow: [a.test]}\nsecrets: [{name: KEY, from: \"env:KEY\", hosts: [a.test]}]":                     2,
		"network: {allow: [a.test, \"10.0.0.0/8:443\"]}\nsecrets: [{name: KEY, from: \"env:KEY\", hosts: [a.test]}]": 3,
	} {
		f, err := Parse("p.yaml", []byte("version: 1\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(Options{File: f})
		if err != nil {
			t.Fatal(err)
		}
		v := p.Decide(&Call{Kind: RunCommand, Operator: true, Argv: []string{"true"}})
		if got := v.Plan.Network.Open(); v.Decision != Allow || len(got) != want {
			t.Errorf("%s: %v %q, want %d", text, v.Decision, got, want)
		}
	}
	if got := (*PlanNetwork)(nil).Open(); got != nil {
		t.Errorf("no network: %q", got)
	}
}

// Entries that name the sandbox's own loopback are told, unless a name may lead there.
func TestNetworkInside(t *testing.T) {
	for list, want := range map[string]string{
		"pypi.org": "", "localhost:80": "localhost:80", "localhost:80 127.0.0.1:80": "localhost:80 127.0.0.1:80", "127.0.0.1:80": "127.0.0.1:80",
		"db.test:80 127.0.0.1:80": "", "db.test:80 localhost:80": "localhost:80", "[::1]:80 10.0.0.1": "[::1]:80", "host.caisson.internal:80": "",
	} {
		n := &PlanNetwork{}
		for text := range strings.FieldsSeq(list) {
			n.Allow = append(n.Allow, PlanRule{Text: text})
		}
		if got := strings.Join(n.Inside(), " "); got != want {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
}
