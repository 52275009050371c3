// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseName(t *testing.T) {
	for in, want := range map[string]string{
		"example.com": "example.com", "EXAMPLE.com": "example.com", "example.com.": "example.com",
		"bücher.example": "xn--bcher-kva.example", "BÜCHER.example": "xn--bcher-kva.example",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "XN--BCHER-KVA.example": "xn--bcher-kva.example",
		"ｅｘａｍｐｌｅ.com": "example.com", "example。com": "example.com",
		"_dmarc.example.com": "_dmarc.example.com", "r3---sn-x.example.com": "r3---sn-x.example.com",
		"localhost": "localhost", "1.example": "1.example", "a.0xyz": "a.0xyz",
	} {
		if got, err := ParseName(in); err != nil || got.String() != want {
			t.Errorf("ParseName(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseNameRefuses(t *testing.T) {
	for _, in := range []string{
		"", ".", "..", "a..b", ".a", "a.b..", "evil.test\x00.good.test", "good.test\r\nX: y", "good.test\n", " good.test", "good test",
		"evil.test#.good.test", "good.test/", "good.test:80", "user@good.test", "good%00.test", "[::1]", "fe80::1%eth0", "*.good.test", "*",
		"127.0.0.1", "127.0.0.1.", "2130706433", "0x7f000001", "0x7f.1", "0X7F.1", "0177.0.0.1", "127.1", "1.2.3.4.5", "a.1", "０.０.０.０", "①.①",
		"-a.test", "a-.test", strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 127) + "toolong", strings.Repeat("a", 5000),
		"xn--a.test", "xn--.test", "\u200dgood.test", "good\u202e.test", "\xff.test", "good\u2024test/",
	} {
		if got, err := ParseName(in); err == nil {
			t.Errorf("ParseName(%q) = %q, want an error", in, got)
		}
	}
}

// promised is what everybody who has a Name relies on.
func promised(t interface{ Fatalf(string, ...any) }, n Name) {
	again, err := ParseName(n.String())
	if err != nil || again != n {
		t.Fatalf("%q does not stay itself: %q, %v", n, again, err)
	}
	if n.s != strings.ToLower(n.s) || strings.HasSuffix(n.s, ".") || strings.ContainsAny(n.s, "\x00\r\n\t :/@#%[]*") {
		t.Fatalf("%q is odd", n)
	}
	for _, r := range n.s {
		if r >= 0x7f || r <= ' ' {
			t.Fatalf("%q has %q", n, r)
		}
	}
}

func TestSpellingsAreOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.SliceOfN(rapid.StringMatching(`[a-z][a-z0-9_]{0,10}[a-z]`), 1, 5).Draw(t, "labels")
		plain := strings.Join(labels, ".")
		n, err := ParseName(plain)
		if err != nil {
			t.Fatalf("%q: %v", plain, err)
		}
		promised(t, n)
		odd := []byte(plain)
		for i := range odd {
			if rapid.Bool().Draw(t, "upper") {
				odd[i] = strings.ToUpper(string(odd[i]))[0]
			}
		}
		if got, err := ParseName(string(odd) + rapid.SampledFrom([]string{"", "."}).Draw(t, "dot")); err != nil || got != n {
			t.Fatalf("%q is %q, %v; want %q", odd, got, err, n)
		}
	})
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"good.test", "good.test", true}, {"GOOD.test.", "good.test", true}, {"good.test", "a.good.test", false},
		{"*.good.test", "a.good.test", true}, {"*.good.test", "a.b.good.test", true}, {"*.good.test", "good.test", false},
		{"*.good.test", "notgood.test", false}, {"*.good.test", "good.test.evil.test", false}, {"*.good.test", "a.good.test.evil.test", false},
		{"*.bücher.test", "a.xn--bcher-kva.test", true},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		n, err := ParseName(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(n); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.name, got)
		}
	}
	if (Pattern{}).Match(Name{}) {
		t.Error("the zero pattern matches")
	}
	for _, bad := range []string{"", "*", "*.", "*.com", "a.*.test", "*a.test", "**.good.test", "*.*.test", "*.10.0.0.1", "*.good.test\x00"} {
		if p, err := ParsePattern(bad); err == nil {
			t.Errorf("ParsePattern(%q) = %q, want an error", bad, p)
		}
	}
}

func TestPatternCovers(t *testing.T) {
	for _, c := range []struct {
		p, q string
		want bool
	}{
		{"a.test", "a.test", true}, {"a.test", "b.test", false}, {"*.a.test", "x.a.test", true}, {"*.a.test", "a.test", false},
		{"*.a.test", "*.a.test", true}, {"*.a.test", "*.x.a.test", true}, {"*.x.a.test", "*.a.test", false},
		{"x.a.test", "*.a.test", false}, {"a.test", "*.a.test", false}, {"*.a.test", "*.ba.test", false},
	} {
		p, _ := ParsePattern(c.p)
		q, _ := ParsePattern(c.q)
		if got := p.Covers(q); got != c.want {
			t.Errorf("%s covers %s: %v", c.p, c.q, got)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"example.com", "BÜCHER.example.", "0x7f.1", "a\x00b", "xn--bcher-kva.example", "。", "①.①"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			return
		}
		promised(t, n)
		p, err := ParsePattern(s)
		if err != nil || !p.Match(n) {
			t.Fatalf("%q does not match itself: %v", s, err)
		}
	})
}
