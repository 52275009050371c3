// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func notOwn(netip.Addr) bool { return false }

func list(t testing.TB, allow, deny []string) *List {
	t.Helper()
	l := &List{}
	for _, s := range allow {
		rs, err := Allow(s, "test")
		if err != nil {
			t.Fatal(err)
		}
		l.Allow = append(l.Allow, rs...)
	}
	for _, s := range deny {
		r, err := Deny(s, "test")
		if err != nil {
			t.Fatal(err)
		}
		l.Deny = append(l.Deny, r)
	}
	return l
}

func host(t testing.TB, s string) Name {
	t.Helper()
	n, err := ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestClassify(t *testing.T) {
	for class, addrs := range map[Class][]string{
		Public:    {"1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "2606:2800:220:1::1", "::ffff:8.8.8.8", "169.253.1.1"},
		Private:   {"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1", "fec0::1", "::ffff:10.0.0.1", "192.168.65.7"},
		Loopback:  {"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"},
		LinkLocal: {"169.254.0.1", "fe80::1", "fe80::1%eth0", "2606::1%eth0", "::ffff:169.254.1.1"},
		Metadata:  {"169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "::ffff:169.254.169.254"},
		Shared:    {"100.64.0.1", "100.127.255.255"},
		Multicast: {"224.0.0.251", "239.255.255.255", "ff02::fb"},
		Embedded:  {"64:ff9b::7f00:1", "2002:7f00:1::", "2001::1", "::7f00:1", "64:ff9b:1::a00:1", "::", "192.88.99.1"},
		Reserved:  {"0.0.0.0", "0.1.2.3", "192.0.0.1", "192.0.2.1", "198.18.0.1", "203.0.113.9", "240.0.0.1", "255.255.255.255", "2001:db8::1", "100::1", "5f00::1", "4000::1", "e000::1"},
	} {
		for _, s := range addrs {
			if got := Classify(netip.MustParseAddr(s)); got != class {
				t.Errorf("Classify(%s) = %q, want %q", s, got, class)
			}
		}
	}
	if got := Classify(netip.Addr{}); got != Unknown {
		t.Errorf("no address is %q", got)
	}
}

// The matrix of what a list lets through by name.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		host        string
		port        uint16
		want        bool
	}{
		{nil, nil, "good.test", 443, false}, // empty means nothing
		{[]string{"good.test"}, nil, "good.test", 443, true},
		{[]string{"good.test"}, nil, "good.test", 80, true},
		{[]string{"good.test"}, nil, "good.test", 22, false},
		{[]string{"good.test:22"}, nil, "good.test", 22, true},
		{[]string{"good.test:22"}, nil, "good.test", 443, false},
		{[]string{"good.test:*"}, nil, "good.test", 25, true},
		{[]string{"good.test:8000-8010"}, nil, "good.test", 8010, true},
		{[]string{"good.test:8000-8010"}, nil, "good.test", 8011, false},
		{[]string{"good.test:*"}, nil, "good.test", 0, false},
		{[]string{"good.test"}, nil, "a.good.test", 443, false},
		{[]string{"*.good.test"}, nil, "a.good.test", 443, true},
		{[]string{"*.good.test"}, nil, "good.test", 443, false},
		{[]string{"*.good.test"}, nil, "notgood.test", 443, false},
		{[]string{"*.good.test"}, nil, "good.test.evil.test", 443, false},
		{[]string{"*.good.test"}, []string{"bad.good.test"}, "bad.good.test", 443, false}, // deny wins
		{[]string{"*.good.test"}, []string{"bad.good.test:80"}, "bad.good.test", 443, true},
		{[]string{"*.good.test"}, []string{"bad.good.test:80"}, "bad.good.test", 80, false},
		{[]string{"good.test"}, []string{"*.test"[2:] + ".x"}, "good.test", 443, true},
		{[]string{"internet"}, nil, "anything.test", 25, true},
		{[]string{"internet:443"}, nil, "anything.test", 25, false},
		{[]string{"internet"}, []string{"*.evil.test"}, "x.evil.test", 443, false},
		{[]string{"internet"}, []string{"internet"}, "good.test", 443, false},
		{[]string{"10.0.0.0/8"}, nil, "good.test", 443, false},
		{[]string{"preset:pip"}, nil, "pypi.org", 443, true},
		{[]string{"preset:pip"}, nil, "pypi.org", 80, false},
		{[]string{"host.caisson.internal:8080"}, nil, "host.caisson.internal", 8080, true},
		{[]string{"host.caisson.internal:8080"}, nil, "host.caisson.internal", 8081, false},
		{[]string{"host.caisson.internal:8080"}, []string{"internet"}, "host.caisson.internal", 8080, false},
		{[]string{"internet", "*.caisson.internal:*"}, nil, "host.caisson.internal", 8080, false}, // by its own entry alone
		{[]string{"internet"}, nil, "other.caisson.internal", 8080, true},
	} {
		l := list(t, c.allow, c.deny)
		d := l.Name(host(t, c.host), c.port)
		if d.Allow != c.want {
			t.Errorf("allow %q deny %q: %s:%d is %+v", c.allow, c.deny, c.host, c.port, d)
		}
		if !d.Allow && d.Reason == "" {
			t.Errorf("%s:%d is refused without a reason", c.host, c.port)
		}
	}
	var none *List
	if none.Name(host(t, "a.test"), 443).Allow || none.Resolve(host(t, "a.test")).Allow || !none.Empty() {
		t.Error("no list allows something")
	}
}

// The matrix of addresses: what a name led to, and what was dialled by number.
func TestAddresses(t *testing.T) {
	own := func(a netip.Addr) bool { return a == netip.MustParseAddr("93.184.216.1") }
	for _, c := range []struct {
		allow, deny    []string
		to             string
		named, numeric bool
	}{
		{[]string{"good.test"}, nil, "93.184.216.34:443", true, false}, // not by its number
		{[]string{"good.test"}, nil, "93.184.216.1:443", false, false}, // this host
		{[]string{"93.184.216.1"}, nil, "93.184.216.1:443", true, true},
		{[]string{"93.184.216.0/24"}, nil, "93.184.216.1:443", true, true},
		{[]string{"93.184.216.0/24"}, nil, "93.184.216.34:443", true, true},
		{[]string{"93.184.216.0/24"}, nil, "93.184.216.34:22", true, false}, // the name's own rule has decided on the port
		{[]string{"good.test"}, nil, "127.0.0.1:443", false, false},
		{[]string{"good.test"}, nil, "10.0.0.1:443", false, false},
		{[]string{"good.test"}, nil, "[::ffff:10.0.0.1]:443", false, false},
		{[]string{"good.test"}, nil, "169.254.169.254:80", false, false},
		{[]string{"good.test"}, nil, "[64:ff9b::a00:1]:443", false, false},
		{[]string{"internet"}, nil, "93.184.216.34:25", true, true},
		{[]string{"internet"}, nil, "10.0.0.1:443", false, false},
		{[]string{"internet"}, nil, "93.184.216.1:22", false, false},
		{[]string{"internet"}, nil, "0.0.0.0:80", false, false},
		{[]string{"internet"}, nil, "[::]:80", false, false},
		{[]string{"internet"}, nil, "100.64.0.1:80", false, false},
		{[]string{"internet"}, nil, "224.0.0.251:5353", false, false},
		{[]string{"10.1.0.0/16:5432"}, nil, "10.1.2.3:5432", true, true},
		{[]string{"10.1.0.0/16:5432"}, nil, "[::ffff:10.1.2.3]:5432", true, true},
		{[]string{"10.1.0.0/16:5432"}, nil, "10.1.2.3:5433", false, false},
		{[]string{"10.1.0.0/16:5432"}, nil, "10.2.0.1:5432", false, false},
		{[]string{"10.1.0.0/16:5432"}, []string{"10.1.2.3"}, "10.1.2.3:5432", false, false},
		{[]string{"good.test"}, []string{"93.184.0.0/16"}, "93.184.216.34:443", false, false},
		{[]string{"169.254.0.0/16:*"}, nil, "169.254.169.254:80", false, false}, // credentials by their own address only
		{[]string{"169.254.169.254:80"}, nil, "169.254.169.254:80", true, true},
		{[]string{"169.0.0.0/8"}, nil, "169.254.1.1:80", false, false},
		{[]string{"127.0.0.1:8080"}, nil, "127.0.0.1:8080", true, true},
		{[]string{"100.0.0.0/8"}, nil, "100.64.0.1:443", false, false},
		{[]string{"[64:ff9b::a00:1]:443"}, nil, "[64:ff9b::a00:1]:443", false, false},
		{[]string{"[2606:2800::1]:443"}, nil, "[2606:2800::1]:443", true, true},
		{nil, nil, "93.184.216.34:443", true, false}, // asked only when a name was allowed
	} {
		l := list(t, c.allow, c.deny)
		to := netip.MustParseAddrPort(c.to)
		if d := l.Address(to, own); d.Allow != c.named {
			t.Errorf("allow %q deny %q: a name that leads to %s is %+v", c.allow, c.deny, c.to, d)
		}
		if d := l.Number(to, own); d.Allow != c.numeric {
			t.Errorf("allow %q deny %q: %s by number is %+v", c.allow, c.deny, c.to, d)
		}
	}
	if d := list(t, []string{"internet"}, nil).Number(netip.MustParseAddrPort("93.184.216.34:443"), nil); d.Allow {
		t.Error("allowed although nobody knows the host's own addresses")
	}
}

// This host's loopback: one port, by its own entry, and nowhere else.
func TestLocal(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		to          string
		want        bool
	}{
		{[]string{"host.caisson.internal:8080"}, nil, "127.0.0.1:8080", true},
		{[]string{"host.caisson.internal:8080"}, nil, "[::1]:8080", true},
		{[]string{"host.caisson.internal:8080"}, nil, "127.0.0.1:8081", false},
		{[]string{"host.caisson.internal:8080"}, nil, "127.0.0.2:8080", false},
		{[]string{"host.caisson.internal:8080"}, nil, "10.0.0.1:8080", false},
		{[]string{"host.caisson.internal:8080"}, []string{"127.0.0.0/8"}, "127.0.0.1:8080", false},
		{[]string{"host.caisson.internal:8080"}, []string{"*.caisson.internal"}, "127.0.0.1:8080", false},
		{[]string{"internet", "*.caisson.internal:*", "127.0.0.1:*"}, nil, "127.0.0.1:8080", false},
	} {
		if d := list(t, c.allow, c.deny).Local(netip.MustParseAddrPort(c.to)); d.Allow != c.want || !d.Allow && d.Reason == "" {
			t.Errorf("allow %q deny %q: %s is %+v", c.allow, c.deny, c.to, d)
		}
	}
	// It opens the address to no other name, and not to a dial of it.
	l := list(t, []string{"host.caisson.internal:8080", "good.test:8080"}, nil)
	to := netip.MustParseAddrPort("127.0.0.1:8080")
	if l.Address(to, notOwn).Allow || l.Number(to, notOwn).Allow {
		t.Error("the address is open")
	}
	for _, s := range []string{"host.caisson.internal", "host.caisson.internal:*", "HOST.caisson.internal.:80-90"} {
		if _, err := Allow(s, ""); err == nil {
			t.Errorf("%s is taken", s)
		}
		if _, err := AllowWeb(s, "", Web{Methods: []string{"GET"}}); err == nil {
			t.Errorf("%s with methods is taken", s)
		}
	}
	if _, err := Deny("host.caisson.internal", ""); err != nil {
		t.Error(err)
	}
}

func TestMeans(t *testing.T) {
	for text, want := range map[string]string{
		"pypi.org": "", "*": "", "10.0.0.0/8": "", "public:8.8.8.8": "but not where they are this host's own", "preset:pip": "pypi.org:443 files.pythonhosted.org:443", "localhost:8080": "inside, that is the sandbox itself",
		"127.0.0.1": "inside, that is the sandbox itself", "[::1]:80": "inside, that is the sandbox itself", "app.localhost": "inside, that is the sandbox itself",
		"host.caisson.internal:80": "this host's loopback",
	} {
		if got := Means(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestLocalInstead(t *testing.T) {
	for text, want := range map[string]string{"localhost:8080": ":8080", "[::1]:80": ":80", "127.0.0.1": ":PORT", "::1": ":PORT"} {
		if got := LocalInstead(text); got != ThisHost+want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{
		"", ":443", "good.test:", "good.test:0", "good.test:65536", "good.test:+1", "good.test:01", "good.test:a", "good.test:9-1", "good.test:1-",
		"https://good.test", "good.test/path", "good.test/24", "user@good.test", "good.test:80:80", "*", "*.com", "*.*.test", "a.*.test",
		"0.0.0.0/0", "::/0", "8.0.0.0/5", "2000::/3", "10.1.2.3/8", "10.0.0.0/33", "10.0.0/8", "127.1", "2130706433", "0x7f000001", "0177.0.0.1",
		"::ffff:10.0.0.1", "::ffff:10.0.0.0/104", "[fe80::1%eth0]:80", "fe80::1%eth0", "[::1", "[::1]80", "[::1]:", "[good.test]x",
		"good.test\x00", "preset:", "preset:none", "preset:pip:443", "internet:", "good.test ,evil.test", "a..test",
	} {
		if rs, err := Allow(s, ""); err == nil {
			t.Errorf("Allow(%q) = %+v, want an error", s, rs)
		}
	}
	for _, s := range []string{"good.test", "*.good.test:443", "GOOD.test.", "10.0.0.0/8:*", "10.0.0.1", "2606:2800::/32", "::1", "[::1]:80", "internet", "Internet:443"} {
		if _, err := Allow(s, ""); err != nil {
			t.Errorf("Allow(%q): %v", s, err)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		have, want string
		ok         bool
	}{
		{"a.test", "a.test", true}, {"a.test", "a.test:443", true}, {"a.test:443", "a.test", false}, {"a.test", "a.test:22", false},
		{"a.test:*", "a.test:1-65535", true}, {"*.a.test", "x.a.test", true}, {"*.a.test", "a.test", false}, {"a.test", "internet", false},
		{"internet", "a.test:*", true}, {"internet:443", "a.test", false}, {"internet", "internet:80", true}, {"internet", "internet", true},
		{"10.0.0.0/8", "10.1.0.0/16", true}, {"10.1.0.0/16", "10.0.0.0/8", false}, {"internet", "10.0.0.1", false}, {"internet", "93.184.216.0/24", false},
		{"169.254.0.0/16", "169.254.169.254", false}, {"169.254.169.254", "169.254.169.254", true}, {"169.0.0.0/8", "169.254.0.0/16", false},
		{"internet", "169.0.0.0/8", false}, {"10.0.0.0/8:5432", "10.0.0.1:5432", true}, {"10.0.0.0/8:5432", "10.0.0.1", false},
		{"internet", "host.caisson.internal:80", false}, {"*.caisson.internal:*", "host.caisson.internal:80", false},
		{"host.caisson.internal:80", "host.caisson.internal:80", true}, {"host.caisson.internal:80", "host.caisson.internal:81", false},
	} {
		have, want := list(t, []string{c.have}, nil).Allow[0], list(t, []string{c.want}, nil).Allow[0]
		if got := have.Covers(want); got != c.ok {
			t.Errorf("%s covers %s: %v", c.have, c.want, got)
		}
	}
	if (Rule{}).Covers(Rule{}) {
		t.Error("the zero rule covers something")
	}
}

// What a rule covers it lets through: a request that was found to be within a
// policy never gets more than the policy.
func TestCoversMeansNoMore(t *testing.T) {
	entries := rapid.SampledFrom([]string{
		"a.test", "a.test:22", "*.a.test", "x.a.test:443", "*.x.a.test:*", "internet", "internet:443", "10.0.0.0/8", "10.1.0.0/16:22", "10.1.2.3:22",
		"169.254.0.0/16:*", "169.254.169.254:80", "169.0.0.0/8:*", "93.184.216.0/24", "93.184.216.34:443", "127.0.0.1:80", "93.184.216.1:443", "*.caisson.internal:*", "host.caisson.internal:80",
		"public:93.184.216.0/24:*", "public:93.184.216.34", "public:93.184.216.1:443", "public:8.0.0.0/8:22",
	})
	addrs := rapid.SampledFrom([]string{"10.1.2.3", "10.9.9.9", "169.254.169.254", "169.254.1.1", "93.184.216.34", "93.184.216.1", "127.0.0.1", "169.1.1.1", "8.8.8.8"})
	hosts := rapid.SampledFrom([]string{"a.test", "x.a.test", "y.x.a.test", "b.test", "host.caisson.internal"})
	own := func(a netip.Addr) bool { return a == netip.MustParseAddr("93.184.216.1") }
	rapid.Check(t, func(rt *rapid.T) {
		have, want := list(t, []string{entries.Draw(rt, "have")}, nil), list(t, []string{entries.Draw(rt, "want")}, nil)
		if !have.Allow[0].Covers(want.Allow[0]) {
			return
		}
		port := rapid.SampledFrom([]uint16{22, 25, 80, 443}).Draw(rt, "port")
		n := host(t, hosts.Draw(rt, "host"))
		if want.Name(n, port).Allow && !have.Name(n, port).Allow {
			rt.Fatalf("%v covers %v but not %s:%d", have.Allow[0], want.Allow[0], n, port)
		}
		to := netip.AddrPortFrom(netip.MustParseAddr(addrs.Draw(rt, "addr")), port)
		if want.Number(to, own).Allow && !have.Number(to, own).Allow {
			rt.Fatalf("%v covers %v but not %s", have.Allow[0], want.Allow[0], to)
		}
	})
}

func FuzzAllow(f *testing.F) {
	for _, s := range []string{"good.test:443", "*.good.test", "10.0.0.0/8:5432", "[::1]:80", "internet", "preset:pip", "a:b:c", "0x7f.1", "public:8.8.8.0/24:53"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rs, err := Allow(s, "")
		if err != nil {
			return
		}
		l := &List{Allow: rs}
		for _, a := range []string{"224.0.0.1:80", "[64:ff9b::1]:80", "[2002::1]:443", "[::]:80"} {
			if l.Number(netip.MustParseAddrPort(a), notOwn).Allow {
				t.Fatalf("%q opens %s", s, a)
			}
		}
		for _, r := range rs {
			if !r.Covers(r) {
				t.Fatalf("%q does not cover itself", s)
			}
		}
	})
}

// Without an allow-list the network is off, and what would open it is said, but for what
// no hint should tell to open.
func TestNetworkOff(t *testing.T) {
	for _, l := range []*List{nil, {}} {
		n, _ := ParseName("example.com")
		if d := l.Name(n, 443); d.Allow || d.Reason != NetworkOff || !d.Open {
			t.Errorf("%+v", d)
		}
		for a, open := range map[string]bool{"93.184.216.34:443": true, "10.0.0.1:5432": true, "169.254.169.254:80": false, "224.0.0.1:53": false} {
			if d := l.Number(netip.MustParseAddrPort(a), nil); d.Allow || d.Reason != NetworkOff || d.Open != open {
				t.Errorf("%s: %+v", a, d)
			}
		}
	}
}

// A host of a preset is opened by the preset.
func TestPresetOf(t *testing.T) {
	for host, want := range map[string]string{"registry.npmjs.org": "preset:npm", "files.pythonhosted.org": "preset:pip", "de.archive.ubuntu.com": "preset:apt", "npmjs.org": ""} {
		n, err := ParseName(host)
		if err != nil {
			t.Fatal(err)
		}
		if got := PresetOf(n, 0); got != want {
			t.Errorf("%s: %q", host, got)
		}
		if got := PresetOf(n, 22); got != "" {
			t.Errorf("%s:22: %q", host, got)
		}
	}
}
