// SPDX-License-Identifier: Apache-2.0

// Package rule is an allow-list for connections: what an operator writes, and
// which connections that lets through.
//
// An entry names a host, all hosts below a name, a range of addresses, or the
// internet; each with ports. What is denied wins over what is allowed, and an
// empty list allows nothing. The package does no I/O: the resolver of a name
// asks again, with the address, before anything is dialled.
package rule

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Rule is one entry of a list. The zero Rule matches nothing.
type Rule struct {
	Text string // as it was written
	From string // where: "policy.yaml:12", "--allow"

	host   Pattern // one of host, net and all says what
	net    netip.Prefix
	public bool // net without this host's own addresses; see public.go
	all    bool // the internet
	ports  ports
	preset string
	web    *conditions // nil says nothing of requests
}

// ports is a set: a range, the two of the web, or all of them.
type ports struct {
	first, last uint16
	web         bool
}

func (p ports) has(port uint16) bool {
	if p.web {
		return port == 443 || port == 80
	}
	return port != 0 && p.first <= port && port <= p.last
}

// covers reports whether p has every port that q has.
func (p ports) covers(q ports) bool {
	switch {
	case q.web:
		return p.has(80) && p.has(443)
	case p.web:
		return q.first == q.last && p.has(q.first)
	}
	return p.first <= q.first && q.last <= p.last
}

var (
	everyPort = ports{first: 1, last: 65535}
	webPorts  = ports{web: true}
)

// Internet is the word for every public address and name.
const Internet = "internet"

// widest is how short a prefix may be: a range of more than 16 million
// addresses is meant as "everything", and there is a word for that.
const widest4, widest6 = 8, 16

// Allow reads an entry of an allow-list. Without a port it means 443 and 80,
// ":*" is every port; the internet without a port is every port. A preset
// stands for several entries. "public:" before an address or a range leaves out
// what is this host's own.
func Allow(text, from string) ([]Rule, error) {
	if p, ok := strings.CutPrefix(text, presetPrefix); ok {
		return preset(p, from)
	}
	if rest, ok := isPublic(text); ok {
		r, err := public(text, rest, from)
		return []Rule{r}, err
	}
	r, err := parse(text, from, webPorts)
	if err == nil {
		err = r.checkLocal()
	}
	return []Rule{r}, err
}

// Word is text where it is one word without a port, and what is meant by it is not clear:
// "all" names no host, and "npm" a preset without its prefix. Empty where it is
// not. With a port a word is a host of one's own network.
func Word(text string) string {
	host, port, err := cut(text)
	if err != nil || port != "" || strings.ContainsAny(text, ".:/[") || strings.EqualFold(host, Internet) || strings.EqualFold(host, "localhost") {
		return ""
	}
	return host
}

// Deny reads an entry of a deny-list. Without a port it means every port.
func Deny(text, from string) (Rule, error) {
	return parse(text, from, everyPort)
}

// Secret reads a host that a secret goes to. Without a port it means 443.
func Secret(text, from string) (Rule, error) {
	return parse(text, from, ports{first: 443, last: 443})
}

func parse(text, from string, usual ports) (Rule, error) {
	r := Rule{Text: text, From: from}
	fail := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf(format, args...)
	}
	if len(text) > 512 {
		return fail("an entry has at most 512 characters")
	}
	if strings.Contains(text, "://") {
		return fail("write the host alone, without %s", text[:strings.Index(text, "://")+3])
	}
	host, port, err := cut(text)
	if err != nil {
		return fail("%w", err)
	}
	switch {
	case strings.EqualFold(host, Internet):
		r.all, usual = true, everyPort
	case strings.Contains(host, "/"):
		r.net, err = netip.ParsePrefix(host)
		if err == nil {
			err = checkPrefix(r.net)
		}
	case strings.Contains(host, ":") || address(host):
		var a netip.Addr
		if a, err = netip.ParseAddr(host); err == nil {
			if a.Zone() != "" || a.Is4In6() {
				return fail("write the address without a zone and as IPv4 where it is one")
			}
			r.net = netip.PrefixFrom(a, a.BitLen())
		}
	default:
		r.host, err = ParsePattern(host)
	}
	if err != nil {
		return fail("%w", err)
	}
	r.ports = usual
	if port != "" {
		r.ports, err = parsePorts(port)
	}
	return r, err
}

// address says whether s is an IPv4 address in the one spelling that is taken.
func address(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// cut takes the port off: "host:443", "[2001:db8::1]:443", "10.0.0.0/8:5432".
// IPv6 needs brackets where there is a port.
func cut(text string) (host, port string, err error) {
	if rest, ok := strings.CutPrefix(text, "["); ok {
		host, rest, ok = strings.Cut(rest, "]")
		if !ok {
			return "", "", fmt.Errorf("a bracket is not closed")
		}
		if rest == "" {
			return host, "", nil
		}
		port, ok = strings.CutPrefix(rest, ":")
		if !ok || port == "" {
			return "", "", fmt.Errorf("after the bracket comes :port")
		}
		return host, port, nil
	}
	if strings.Count(text, ":") != 1 { // none, or bare IPv6
		return text, "", nil
	}
	host, port, _ = strings.Cut(text, ":")
	if port == "" {
		return "", "", fmt.Errorf("there is no port after the colon")
	}
	return host, port, nil
}

func parsePorts(s string) (ports, error) {
	if s == "*" {
		return everyPort, nil
	}
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	first, err := port(low)
	if err != nil {
		return ports{}, err
	}
	last, err := port(high)
	if err != nil {
		return ports{}, err
	}
	if first > last {
		return ports{}, fmt.Errorf("the range of ports %s is the wrong way round", s)
	}
	return ports{first: first, last: last}, nil
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' || s[0] == '0' {
		return 0, fmt.Errorf("%q is no port; ports are 1 to 65535", s)
	}
	return uint16(n), nil
}

func checkPrefix(p netip.Prefix) error {
	least := widest4
	if p.Addr().Is6() {
		least = widest6
	}
	switch {
	case p.Addr().Is4In6():
		return fmt.Errorf("write the range as IPv4")
	case p.Masked() != p:
		return fmt.Errorf("%s has bits beyond its length; write %s", p, p.Masked())
	case p.Bits() < least:
		return fmt.Errorf("%s is too wide; write %s for every public address", p, Internet)
	}
	return nil
}

// AnyPort is r on every port.
func (r Rule) AnyPort() Rule {
	r.ports = everyPort
	return r
}

// String is the rule as it was written.
func (r Rule) String() string {
	if r.preset != "" {
		return presetPrefix + r.preset
	}
	return r.Text
}

// Covers reports whether r lets through all that q would.
func (r Rule) Covers(q Rule) bool {
	if !r.ports.covers(q.ports) {
		return false
	}
	switch {
	case q.all:
		return r.all
	case q.net.IsValid():
		// Neither the internet nor what is public covers a range: written out, that
		// opens this host's own addresses in it, too.
		if r.all || r.public && !q.public {
			return q.public
		}
		return r.net.IsValid() && r.net.Bits() <= q.net.Bits() && r.net.Contains(q.net.Addr()) && samePurpose(r.net, q.net)
	case q.Local():
		return r.Local()
	case !q.host.IsZero():
		return r.all || r.host.Covers(q.host)
	}
	return false
}

// samePurpose keeps a wide range from covering a narrow one that opens what the
// wide one does not: see opens.
func samePurpose(wide, narrow netip.Prefix) bool {
	for _, b := range blocks() {
		if b.prefix.Overlaps(narrow) && narrow.Bits() >= b.prefix.Bits() && wide.Bits() < b.prefix.Bits() {
			return false
		}
	}
	return true
}
