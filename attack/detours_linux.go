// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/session"
)

// Ways around an allow-list that begin at what it allows.

// rebinding has an allowed name lead to the host's loopback, as an attacker's
// own name server can: the name is allowed, the address is not.
func (s *suite) rebinding(ctx context.Context) finding {
	all, end, err := ears(2)
	if err != nil {
		return unable(err)
	}
	defer end()
	open, shut := all[0], all[1]
	knock := func(what, bytes, tls string) probe.Knock {
		return probe.Knock{What: what, To: shut.at(localhost), Bytes: bytes, TLS: tls}
	}
	return s.outside(ctx, "N08", open, func(c *session.Call) {
		c.Network = append(c.Network, open.at(localhost), open.at("127.0.0.1"), shut.at(localhost))
	}, func() string { return reached(shut, "an allowed name led to the host's loopback, which nothing opens") },
		knock("ask", request("/", shut.at(localhost)), ""),
		knock("ask again", request("/", shut.at(localhost)), ""),
		knock("ask inside TLS", request("/", shut.at(localhost)), localhost),
		knock("say something that is no request", "\x00rebound", ""),
	)
}

// oddNames names another host in spellings that two readers could take for two.
func (s *suite) oddNames(ctx context.Context) finding {
	const evil = "caisson-attack-evil.test"
	return s.misnamed(ctx, "N09", evil, func(to string) []string {
		return []string{
			localhost + "\x00." + evil, evil + "\x00." + localhost, localhost + "%00." + evil, evil + "%00" + localhost, evil + "#." + localhost,
			localhost + "@" + evil, evil + "/" + to, evil + "\\@" + to, localhost + "." + evil + ".", "CAISSON-ATTACK-EVIL.TEST", "xn--" + evil,
			"[::1%25" + evil + "]", evil + "\t" + to, "caisson-attack-evil\u3002test." + evil,
		}
	})
}

// likeNames names hosts whose names begin or end as an allowed one does.
func (s *suite) likeNames(ctx context.Context) finding {
	const sign = "caisson-attack-like"
	return s.misnamed(ctx, "N10", sign, func(string) []string {
		return []string{sign + localhost, sign + "." + localhost, sign + "-" + localhost, localhost + "." + sign, localhost + sign, localhost + "." + sign + ".test"}
	})
}

// misnamed asks a server that is allowed for other hosts, each with sign in its
// name.
func (s *suite) misnamed(ctx context.Context, id, sign string, hosts func(to string) []string) finding {
	all, end, err := ears(1)
	if err != nil {
		return unable(err)
	}
	defer end()
	e := all[0]
	var knocks []probe.Knock
	for _, at := range []string{localhost, "127.0.0.1"} {
		to := e.at(at)
		for _, host := range hosts(to) {
			knocks = append(knocks,
				probe.Knock{What: fmt.Sprintf("name %q at %s", host, at), To: to, Bytes: request("/", host)},
				probe.Knock{What: fmt.Sprintf("name %q in the target at %s", host, at), To: to, Bytes: request("http://"+host+"/", to)})
		}
	}
	return s.outside(ctx, id, e, func(c *session.Call) { allowing(c, e) }, func() string {
		if e.has(sign) {
			return "a server that is allowed was asked for another host"
		}
		return ""
	}, knocks...)
}

// onwards goes from an allowed server to what is not allowed: to its other ports,
// through it, or past HTTP.
func (s *suite) onwards(ctx context.Context) finding {
	all, end, err := ears(2)
	if err != nil {
		return unable(err)
	}
	defer end()
	open, shut := all[0], all[1]
	var knocks []probe.Knock
	for _, at := range []string{localhost, "127.0.0.1"} {
		for what, k := range map[string]probe.Knock{
			"follow a redirect to another port": {To: shut.at(at), Bytes: request("/", shut.at(at))},
			"a tunnel":                          {To: open.at(at), Bytes: "CONNECT " + shut.at(at) + " HTTP/1.1\r\nHost: " + shut.at(at) + "\r\n\r\n"},
			"an upgrade to something raw":       {To: open.at(at), Bytes: request("/", open.at(at), "Upgrade: caisson-raw")},
			"an upgrade to a tunnel":            {To: open.at(at), Bytes: request("/", open.at(at), "Upgrade: connect-udp, caisson-raw")},
		} {
			k.What = what + " at " + at
			knocks = append(knocks, k)
		}
	}
	return s.outside(ctx, "N13", open, func(c *session.Call) { allowing(c, open) }, func() string {
		if open.has("CONNECT ", "caisson-raw") {
			return "a server that is allowed was asked for a tunnel"
		}
		return reached(shut, "a port that is not allowed was reached")
	}, knocks...)
}

// withoutProxy speaks anything but what a proxy would see.
func (s *suite) withoutProxy(ctx context.Context) finding {
	all, end, err := ears(2)
	if err != nil {
		return unable(err)
	}
	defer end()
	open, shut := all[0], all[1]
	var knocks []probe.Knock
	for _, at := range []string{localhost, "127.0.0.1"} {
		to := shut.at(at)
		knocks = append(knocks,
			probe.Knock{What: "HTTP to " + at, To: to, Bytes: request("/", to)},
			probe.Knock{What: "TLS to " + at, To: to, Bytes: request("/", to), TLS: localhost},
			probe.Knock{What: "words to " + at, To: to, Bytes: "EHLO caisson\r\n"},
			probe.Knock{What: "QUIC to " + at, To: to, Bytes: "\xc3\x00\x00\x00\x01\x08caisson!", UDP: true})
	}
	return s.outside(ctx, "N14", open, func(c *session.Call) { allowing(c, open) }, func() string {
		return reached(shut, "a server that is not allowed was reached without a proxy")
	}, knocks...)
}

// oneLocalPort asks for the host's loopback where one port of it is open under the name
// that is for that: for another port under that name, and for the open one under others.
func (s *suite) oneLocalPort(ctx context.Context) finding {
	all, end, err := ears(2)
	if err != nil {
		return unable(err)
	}
	defer end()
	open, shut, mark, around := all[0], all[1], "allowed-"+s.nonce, "around-"+s.nonce
	name := rule.ThisHost
	knocks := []probe.Knock{
		{What: "what is allowed", Must: true, To: open.at(name), Bytes: request("/"+mark, open.at(name))},
		{What: "another port", To: shut.at(name), Bytes: request("/", shut.at(name))},
		{What: "another port, with TLS", To: shut.at(name), Bytes: request("/", shut.at(name)), TLS: name},
		{What: "another port, in capitals", To: shut.at(strings.ToUpper(name)), Bytes: request("/", shut.at(name))},
		{What: "a tunnel to another port", To: open.at(name), Bytes: "CONNECT " + shut.at(name) + " HTTP/1.1\r\nHost: " + shut.at(name) + "\r\n\r\n"},
		{What: "another name on its connection", To: open.at(name), Bytes: request("/"+around, open.at(localhost))},
		{What: "another target on its connection", To: open.at(name), Bytes: request("http://"+open.at("127.0.0.1")+"/"+around, open.at(name))},
		{What: "a datagram", To: open.at(name), Bytes: around, UDP: true},
	}
	for _, host := range []string{localhost, "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "127.1", "a." + name, "caisson.internal"} {
		knocks = append(knocks,
			probe.Knock{What: "its port at " + host, To: open.at(host), Bytes: request("/"+around, open.at(host))},
			probe.Knock{What: "another port at " + host, To: shut.at(host), Bytes: request("/", shut.at(host))})
	}
	f := s.outside(ctx, "N19", nil, func(c *session.Call) {
		c.Network = append(c.Network, open.at(name), "*.caisson.internal:*", "internet")
	}, func() string {
		if open.has(around) {
			return "the open port of the host's loopback was reached by something else than its name"
		}
		return reached(shut, "a port of the host's loopback was reached that nothing opens")
	}, knocks...)
	if f.verdict == Pass && !open.has(mark) {
		return finding{verdict: Unclear, reason: "the request that is allowed did not arrive"}
	}
	return f
}

// reached says why a server should not have heard anything, when it has.
func reached(e *ear, why string) string {
	if n := e.count(); n > 0 {
		return fmt.Sprintf("%s: %d times", why, n)
	}
	return ""
}
