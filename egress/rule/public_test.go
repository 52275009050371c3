// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// What is written as public is public from its first address to its last, in whichever
// spelling it comes.
func TestPublicIsRead(t *testing.T) {
	for _, s := range []string{"public:8.8.8.8", "public:8.8.8.0/24:53", "public:1.1.1.1/32:*", "public:8.0.0.0/8", "public:172.32.0.0/11", "public:[2606:4700::1111]:443", "public:2606:4700::/32", "public:[2606:4700::/32]:*"} {
		if rs, err := Allow(s, ""); err != nil || len(rs) != 1 || rs[0].String() != s {
			t.Errorf("Allow(%q) = %+v, %v", s, rs, err)
		}
	}
	for _, s := range []string{
		"public:", "public:internet", "public:good.test", "public:*.good.test", "public:preset:pip", "public:public:8.8.8.8", "public:host.caisson.internal:80",
		// One class each, and its mapped spelling.
		"public:10.0.0.1", "public:172.16.0.1", "public:192.168.1.1", "public:127.0.0.1", "public:169.254.169.254", "public:168.63.129.16", "public:100.100.100.200",
		"public:100.64.0.1", "public:0.0.0.0", "public:224.0.0.1", "public:240.0.0.1", "public:198.18.0.1", "public:192.0.2.1", "public:192.88.99.1",
		"public:::1", "public:fe80::1", "public:fe80::1%eth0", "public:2606::1%eth0", "public:fd00:ec2::254", "public:fc00::1", "public:ff02::1", "public:::",
		"public:::ffff:8.8.8.8", "public:::ffff:10.0.0.1", "public:::ffff:808:808/128", "public:64:ff9b::808:808", "public:64:ff9b:1::1", "public:2002:808:808::1", "public:2001::1", "public:2001:db8::1", "public:4000::1",
		// Ranges that hold more than that.
		"public:168.0.0.0/8", "public:169.0.0.0/8", "public:172.0.0.0/8", "public:172.16.0.0/11", "public:192.0.0.0/8", "public:100.0.0.0/8", "public:100.100.100.0/24", "public:168.63.129.0/24", "public:0.0.0.0/0", "public:8.0.0.0/5", "public:8.8.8.8/24",
		"public:2001::/16", "public:2002::/16", "public:2000::/3", "public:::/0", "public:::ffff:0:0/96", "public:2620::/16",
		"public:08.8.8.8", "public:8.8.8", "public:134744072", "public:0x08080808", "public:8.8.8.8:0", "public:8.8.8.8:",
	} {
		if rs, err := Allow(s, ""); err == nil {
			t.Errorf("Allow(%q) = %+v, want an error", s, rs)
		}
	}
	for _, s := range []string{"public:8.8.8.8", "public:8.8.8.0/24:53", "public:2606:4700::/32"} {
		if r, err := Deny(s, ""); err == nil {
			t.Errorf("Deny(%q) = %+v", s, r)
		}
		if r, err := Secret(s, ""); err == nil {
			t.Errorf("Secret(%q) = %+v", s, r)
		}
		if r, err := AllowWeb(s, "", Web{Methods: []string{"GET"}}); err == nil {
			t.Errorf("AllowWeb(%q) = %+v", s, r)
		}
	}
	// A host of that name is still one.
	for _, s := range []string{"public", "public:80", "public:*", "public:80-90"} {
		if rs, err := Allow(s, ""); err == nil && (rs[0].public || rs[0].net.IsValid()) {
			t.Errorf("Allow(%q) = %+v", s, rs)
		}
	}
}

// It opens what the internet has of the range, and nothing by name.
func TestPublicOpens(t *testing.T) {
	own := func(a netip.Addr) bool { return a == netip.MustParseAddr("93.184.216.1") }
	for _, c := range []struct {
		allow, deny []string
		to          string
		want        bool
	}{
		{[]string{"public:93.184.216.0/24"}, nil, "93.184.216.34:443", true},
		{[]string{"public:93.184.216.0/24"}, nil, "[::ffff:93.184.216.34]:443", true},
		{[]string{"public:93.184.216.0/24"}, nil, "93.184.216.34:22", false},
		{[]string{"public:93.184.216.0/24:*"}, nil, "93.184.216.34:22", true},
		{[]string{"public:93.184.216.0/24:*"}, nil, "93.184.217.34:22", false},
		{[]string{"public:93.184.216.0/24:*"}, nil, "93.184.216.1:22", false}, // this host
		{[]string{"public:93.184.216.1:*"}, nil, "93.184.216.1:22", false},
		{[]string{"public:93.184.216.1:*", "93.184.216.1:22"}, nil, "93.184.216.1:22", true},
		{[]string{"public:93.184.216.0/24"}, []string{"93.184.216.34"}, "93.184.216.34:443", false}, // deny wins
		{[]string{"public:93.184.216.0/24"}, []string{"internet"}, "93.184.216.34:443", false},
		{[]string{"public:93.184.216.0/24"}, []string{"93.184.216.34:80"}, "93.184.216.34:443", true},
		{[]string{"public:[2606:4700::/32]:443"}, nil, "[2606:4700::1]:443", true},
		{[]string{"public:[2606:4700::/32]:443"}, nil, "[2606:4701::1]:443", false},
	} {
		if d := list(t, c.allow, c.deny).Number(netip.MustParseAddrPort(c.to), own); d.Allow != c.want || !d.Allow && d.Reason == "" {
			t.Errorf("allow %q deny %q: %s is %+v", c.allow, c.deny, c.to, d)
		}
	}
	l := list(t, []string{"public:93.184.216.0/24:*"}, nil)
	if l.Number(netip.MustParseAddrPort("93.184.216.34:443"), nil).Allow {
		t.Error("allowed although nobody knows the host's own addresses")
	}
	for _, n := range []string{"good.test", "public", ThisHost} {
		if n, err := ParseName(n); err == nil && l.Resolve(n).Allow {
			t.Errorf("%v may be looked up", n)
		}
	}
}

func TestPublicIsCovered(t *testing.T) {
	for _, c := range []struct {
		have, want string
		ok         bool
	}{
		{"internet", "public:8.8.8.8:*", true},
		{"internet:443", "public:8.8.8.8:443", true},
		{"internet:443", "public:8.8.8.8", false},
		{"internet", "public:[2606:4700::1111]:*", true},
		{"public:8.8.8.0/24", "public:8.8.8.8", true},
		{"public:8.8.8.8", "public:8.8.8.0/24", false},
		{"public:8.8.8.0/24", "public:8.8.8.8:53", false},
		{"8.8.8.0/24", "public:8.8.8.8", true},
		{"public:8.8.8.0/24", "8.8.8.8", false}, // which opens it where it is this host's own
		{"internet", "8.8.8.8", false},
		{"public:8.8.8.0/24", "internet", false},
		{"public:8.0.0.0/8:*", "pypi.org", false},
		{"public:8.0.0.0/8:*", "host.caisson.internal:80", false},
		{"pypi.org:*", "public:8.8.8.8", false},
		{"*.pypi.org:*", "public:8.8.8.8", false},
		{"10.0.0.0/8:*", "public:8.8.8.8", false},
		{"preset:pip", "public:8.8.8.8:443", false},
		{"host.caisson.internal:443", "public:8.8.8.8:443", false},
	} {
		have, want := list(t, []string{c.have}, nil).Allow[0], list(t, []string{c.want}, nil).Allow[0]
		if got := have.Covers(want); got != c.ok {
			t.Errorf("%s covers %s: %v", c.have, c.want, got)
		}
	}
}

func TestPublicPart(t *testing.T) {
	for text, want := range map[string]string{
		"8.8.8.8": "public:8.8.8.8", "8.8.8.0/24:53": "public:8.8.8.0/24:53", "[2606:4700::/32]:*": "public:[2606:4700::/32]:*",
		"10.0.0.1": "", "169.254.169.254:80": "", "100.0.0.0/8": "", "::ffff:8.8.8.8": "", "64:ff9b::808:808": "", "pypi.org": "", "internet": "", "preset:pip": "",
		"public:8.8.8.8": "", "80": "", "*": "", "": "",
	} {
		if got := PublicPart(text); got != want {
			t.Errorf("PublicPart(%q) = %q, want %q", text, got, want)
		}
	}
}

// Whatever range is taken, every address in it is public, and none is opened that the
// internet does not open.
func TestPublicIsPublic(t *testing.T) {
	own := func(a netip.Addr) bool { return a.As16()[15]%7 == 0 }
	internet := list(t, []string{"internet"}, nil)
	near := rapid.SampledFrom(blocks()) // half of the ranges lie beside something special
	rapid.Check(t, func(rt *rapid.T) {
		var b [16]byte
		copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "address"))
		a := netip.AddrFrom16(b)
		if rapid.Bool().Draw(rt, "four") {
			a = netip.AddrFrom4([4]byte(b[:4]))
		}
		if rapid.Bool().Draw(rt, "near") {
			p := near.Draw(rt, "block").prefix
			a = rapid.SampledFrom([]netip.Addr{p.Addr(), p.Addr().Prev(), p.Addr().Next()}).Draw(rt, "edge")
		}
		if !a.IsValid() {
			return
		}
		p, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(rt, "bits"))
		if err != nil {
			rt.Fatal(err)
		}
		text := PublicPart("[" + p.String() + "]:*")
		if text == "" {
			return
		}
		l := list(t, []string{text}, nil)
		in := p.Addr().As16()
		for i, r := range rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "inside") {
			bits := p.Bits() + 128 - a.BitLen()
			mask := byte(0xff)
			if left := bits - 8*i; left >= 8 {
				mask = 0
			} else if left > 0 {
				mask = 0xff >> left
			}
			in[i] |= r & mask
		}
		to := netip.AddrFrom16(in).Unmap()
		if !p.Contains(to) {
			rt.Fatalf("%s is not in %s", to, p)
		}
		if Classify(to) != Public {
			rt.Fatalf("%s is taken, and %s is %s", text, to, Classify(to))
		}
		if d, public := l.Number(netip.AddrPortFrom(to, 443), own), internet.Number(netip.AddrPortFrom(to, 443), own); d.Allow != public.Allow {
			rt.Fatalf("%s: %s is %+v, and in the internet %+v", text, to, d, public)
		}
		if !internet.Allow[0].Covers(l.Allow[0]) {
			rt.Fatalf("the internet does not cover %s", text)
		}
	})
}
