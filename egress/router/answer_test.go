// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-run/caisson/egress/rule"
)

// goodOnly allows good.test and what is below it.
func goodOnly() *Answerer {
	return &Answerer{Zone: &Zone{}, Allowed: func(n rule.Name) bool {
		return n.String() == "good.test" || strings.HasSuffix(n.String(), ".good.test")
	}}
}

func question(t testing.TB, host string, kind dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(host)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func askZone(t testing.TB, r *Answerer, q []byte) (dnsmessage.Message, Query) {
	t.Helper()
	b, asked := r.Answer(q)
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("the reply to %x: %v", q, err)
	}
	return m, asked
}

func TestAnswer(t *testing.T) {
	r := goodOnly()
	for _, c := range []struct {
		host    string
		kind    dnsmessage.Type
		code    dnsmessage.RCode
		answers int
	}{
		{"good.test.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"GOOD.test.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"a.good.test.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"good.test.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		{"good.test.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, 0},
		{"good.test.", 65, dnsmessage.RCodeSuccess, 0}, // HTTPS
		{"good.test.", 64, dnsmessage.RCodeSuccess, 0}, // SVCB
		{"good.test.", dnsmessage.TypeALL, dnsmessage.RCodeSuccess, 0},
		{"evil.test.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"notgood.test.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"good.test.evil.test.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"73656372657473.evil.test.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, 0},
		{"evil.test\x00.good.test.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"evil test.good.test.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{".", dnsmessage.TypeNS, dnsmessage.RCodeNameError, 0},
		{"8.8.8.8.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError, 0},
		{"127.0.0.1.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
	} {
		m, q := askZone(t, r, question(t, c.host, c.kind))
		if m.RCode != c.code || len(m.Answers) != c.answers || !m.Response || m.ID != 7 {
			t.Errorf("%q %v: %v", c.host, c.kind, m.GoString())
		}
		if q.Allowed != (c.code == dnsmessage.RCodeSuccess) {
			t.Errorf("%q is said to be allowed: %v", c.host, q.Allowed)
		}
		for _, a := range m.Answers {
			addr := netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A)
			if !Pool.Contains(addr) || r.Zone.Name(addr) != q.Name {
				t.Errorf("%q has the address %v, which is %q's", c.host, addr, r.Zone.Name(addr))
			}
		}
	}
}

func TestSpellingsShareAnAddress(t *testing.T) {
	r := goodOnly()
	a, _ := askZone(t, r, question(t, "good.test.", dnsmessage.TypeA))
	b, _ := askZone(t, r, question(t, "gOOd.TEST.", dnsmessage.TypeA))
	if *a.Answers[0].Body.(*dnsmessage.AResource) != *b.Answers[0].Body.(*dnsmessage.AResource) {
		t.Error("two spellings have two addresses")
	}
	if b.Questions[0].Name.String() != "gOOd.TEST." {
		t.Error("the question does not come back as it was asked")
	}
	if n := r.Zone.Name(netip.MustParseAddr("198.18.200.1")); !n.IsZero() {
		t.Errorf("an address that was never given out is %q's", n)
	}
}

func TestNoReply(t *testing.T) {
	r := goodOnly()
	response := question(t, "good.test.", dnsmessage.TypeA)
	response[2] |= 0x80
	for name, q := range map[string][]byte{"nothing": nil, "short": {1, 2, 3}, "response": response, "long": make([]byte, 1500)} {
		if reply, _ := r.Answer(q); reply != nil {
			t.Errorf("%s is answered: %x", name, reply)
		}
	}
	two := question(t, "good.test.", dnsmessage.TypeA)
	two[5] = 2
	update := question(t, "good.test.", dnsmessage.TypeA)
	update[2] |= 5 << 3
	chaos := question(t, "good.test.", dnsmessage.TypeA)
	chaos[len(chaos)-1] = 3
	for name, c := range map[string]struct {
		q    []byte
		code dnsmessage.RCode
	}{"two questions": {two, dnsmessage.RCodeFormatError}, "update": {update, dnsmessage.RCodeNotImplemented}, "chaos": {chaos, dnsmessage.RCodeRefused}} {
		if m, _ := askZone(t, r, c.q); m.RCode != c.code || len(m.Answers) != 0 {
			t.Errorf("%s: %v", name, m.GoString())
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	r := goodOnly()
	for i := range maxNames {
		if m, _ := askZone(t, r, question(t, fmt.Sprintf("h%d.good.test.", i), dnsmessage.TypeA)); len(m.Answers) != 1 {
			t.Fatalf("name %d has no address", i)
		}
	}
	m, q := askZone(t, r, question(t, "onemore.good.test.", dnsmessage.TypeA))
	if m.RCode != dnsmessage.RCodeServerFailure || !q.Full {
		t.Errorf("one name too many: %v", m.GoString())
	}
	if m, _ := askZone(t, r, question(t, "h0.good.test.", dnsmessage.TypeA)); len(m.Answers) != 1 {
		t.Error("a name that has an address lost it")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(question(f, "good.test.", dnsmessage.TypeA))
	f.Add(question(f, "evil.test.", dnsmessage.TypeTXT))
	f.Add(append(question(f, "good.test.", 65), 0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := goodOnly()
		reply, q := r.Answer(b)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || !m.Response || len(reply) > 600 {
			t.Fatalf("%x is answered with %x: %v", b, reply, err)
		}
		if len(m.Answers) > 0 && (!q.Allowed || !r.Allowed(q.Name)) {
			t.Fatalf("%x got an address", b)
		}
	})
}
