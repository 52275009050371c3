// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session"
)

// These cases are about a sandbox with a network. Its hosts are servers of the
// suite's own on the host's loopback, which is reached by an entry for its
// address alone; what they heard is what counts. A request that is allowed must
// arrive, or else nothing was shown.

// localhost is the one name that every host knows to be itself.
const localhost = "localhost"

// resolver is where a sandbox asks for names (package egress).
const resolver = "198.18.0.1:53"

// ear is a server that keeps what it hears.
type ear struct {
	port    int
	tcp     net.Listener
	udp     net.PacketConn
	serving sync.WaitGroup

	mu    sync.Mutex
	heard []byte
	calls int
}

// Bounds of what is heard: of one connection, in bytes and time, and of all.
const (
	maxHeard    = 64 << 10
	hearingTime = 5 * time.Second
	maxEar      = 4 << 20
)

// listen starts a server at an address of the host's, of TCP and UDP on one port.
func listen(address string) (*ear, error) {
	var err error
	for range 16 { // the port may be taken for the other
		e := &ear{}
		if e.tcp, err = net.Listen("tcp4", address+":0"); err != nil {
			return nil, err
		}
		e.port = e.tcp.Addr().(*net.TCPAddr).Port
		if e.udp, err = net.ListenPacket("udp4", e.at(address)); err != nil {
			e.tcp.Close()
			continue
		}
		e.serving.Go(e.accept)
		e.serving.Go(e.datagrams)
		return e, nil
	}
	return nil, err
}

func (e *ear) close() {
	e.tcp.Close()
	e.udp.Close()
	e.serving.Wait()
}

// at is this server at one of the host's names.
func (e *ear) at(host string) string { return net.JoinHostPort(host, strconv.Itoa(e.port)) }

func (e *ear) accept() {
	for {
		c, err := e.tcp.Accept()
		if err != nil {
			return
		}
		e.keep(nil, 1)
		e.serving.Go(func() { e.serve(c) })
	}
}

// serve keeps a request and answers it; TLS is hung up on.
func (e *ear) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hearingTime))
	var all []byte
	b := make([]byte, 4<<10)
	for len(all) < maxHeard {
		n, err := c.Read(b)
		e.keep(b[:n], 0)
		all = append(all, b[:n]...)
		if err != nil || len(all) > 0 && all[0] == 0x16 {
			return
		}
		if bytes.Contains(all, []byte("\r\n\r\n")) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
			// What comes after the head is heard, too.
			_ = c.(*net.TCPConn).CloseWrite()
		}
	}
}

func (e *ear) datagrams() {
	b := make([]byte, 4<<10)
	for {
		n, _, err := e.udp.ReadFrom(b)
		if err != nil {
			return
		}
		e.keep(b[:n], 1)
	}
}

func (e *ear) keep(b []byte, calls int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls += calls
	e.heard = append(e.heard, b[:min(len(b), max(0, maxEar-len(e.heard)))]...)
}

// has reports whether any of words was heard, in any case.
func (e *ear) has(words ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range words {
		if bytes.Contains(bytes.ToLower(e.heard), []byte(strings.ToLower(w))) {
			return true
		}
	}
	return false
}

func (e *ear) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

// request is the head of one, the last on its connection, with more lines.
func request(target, host string, lines ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(lines, "Connection: close", ""), "\r\n") + "\r\n"
}

// outside has a sandbox with a network knock, and asks bad what came of it. The
// first knock at open is allowed: when it does not arrive, nothing was shown.
func (s *suite) outside(ctx context.Context, id string, open *ear, change func(*session.Call), bad func() string, knocks ...probe.Knock) finding {
	mark := "allowed-" + s.nonce
	plan := probe.Knocks{Case: id, Resolver: resolver}
	if open != nil {
		plan.List = append(plan.List, probe.Knock{What: "what is allowed", Must: true, To: open.at(localhost), Bytes: request("/"+mark, open.at(localhost))})
	}
	plan.List = append(plan.List, knocks...)
	text, _ := json.Marshal(plan)
	sc := s.begin(ctx, change, probe.ModeNetwork, string(text))
	err := sc.wait(probe.CaseReady)
	sc.end()
	if why := bad(); why != "" {
		return finding{verdict: Breach, reason: why}
	}
	if err != nil {
		return unable(err)
	}
	if open != nil && !open.has(mark) {
		why := "the request that is allowed did not arrive"
		if tried := sc.out.Of(id); len(tried) > 0 {
			why += ": " + tried[0].Error
		}
		return finding{verdict: Unclear, reason: why}
	}
	return pass()
}

// ears starts servers on the host's loopback.
func ears(n int) (all []*ear, end func(), err error) {
	end = func() {
		for _, e := range all {
			e.close()
		}
	}
	for range n {
		e, err := listen("127.0.0.1")
		if err != nil {
			end()
			return nil, nil, err
		}
		all = append(all, e)
	}
	return all, end, nil
}

// allowing lets a sandbox reach servers of the suite by name and by number.
func allowing(c *session.Call, to ...*ear) {
	for _, e := range to {
		c.Network = append(c.Network, e.at(localhost), e.at("127.0.0.1"))
	}
}

// secretly gives the sandbox a secret that goes to one server, over TLS.
func secretly(c *session.Call, value string, to *ear, others bool) {
	const variable = "CAISSON_ATTACK_REAL"
	c.Secrets = append(c.Secrets, policy.Secret{Name: probe.SecretName, From: "env:" + variable, Hosts: []string{to.at(localhost)}, Others: others})
	c.Lookup = func(name string) (string, bool) {
		if name == variable {
			return value, true
		}
		return os.LookupEnv(name)
	}
}

// misplacedSecret sends a secret's placeholder where the secret does not go.
func (s *suite) misplacedSecret(ctx context.Context) finding {
	all, end, err := ears(2)
	if err != nil {
		return unable(err)
	}
	defer end()
	its, other := all[0], all[1]
	value := s.token("S05")
	bearer := "Authorization: Bearer " + probe.Placeholder
	knock := func(what, to, bytes string) probe.Knock { return probe.Knock{What: what, To: to, Bytes: bytes} }
	return s.outside(ctx, "S05", other, func(c *session.Call) {
		allowing(c, its, other)
		secretly(c, value, its, true)
	}, func() string {
		for _, e := range all {
			if e.has(value, base64.StdEncoding.EncodeToString([]byte(value))) {
				return "a server got the secret that it should not get: without TLS, or not the secret's"
			}
		}
		return ""
	},
		knock("to its host, without TLS", its.at(localhost), request("/", its.at(localhost), bearer)),
		knock("in a path", its.at(localhost), request("/"+probe.Placeholder, its.at(localhost))),
		knock("to another port", other.at(localhost), request("/", other.at(localhost), bearer)),
		knock("to an address", its.at("127.0.0.1"), request("/", its.at("127.0.0.1"), bearer)),
		knock("to another port under its name", other.at(localhost), request("/", its.at(localhost), bearer)),
		knock("to another port as its URL", other.at(localhost), request("http://"+its.at(localhost)+"/", other.at(localhost), bearer)),
	)
}

// foreignCredential uses an allowed host with another user's account.
func (s *suite) foreignCredential(ctx context.Context) finding {
	all, end, err := ears(1)
	if err != nil {
		return unable(err)
	}
	defer end()
	e, theirs := all[0], "theirs-"+s.nonce
	var knocks []probe.Knock
	for _, line := range []string{
		"Authorization: Bearer %s", "authorization: token %s", "Authorization : Bearer %s", "Proxy-Authorization: Basic %s", "X-Api-Key: %s", "x_api_key: %s",
		"Private-Token: %s", "Cookie: session=%s", "Authorization: Bearer " + probe.Placeholder + ", %s", "Authorization: Bearer " + probe.Placeholder + "\r\nAuthorization: %s",
	} {
		line = strings.Replace(line, "%s", theirs, 1)
		name, _, _ := strings.Cut(line, ":")
		knocks = append(knocks, probe.Knock{What: "in " + name, To: e.at(localhost), Bytes: request("/", e.at(localhost), line)})
	}
	return s.outside(ctx, "S06", e, func(c *session.Call) {
		allowing(c, e)
		secretly(c, s.token("S06"), e, false)
	}, func() string {
		if e.has(theirs) {
			return "a host that has a secret of the sandbox's got another account's credential"
		}
		return ""
	}, knocks...)
}

// oddAddresses asks for the host's own loopback where every public address is
// allowed.
func (s *suite) oddAddresses(ctx context.Context) finding {
	all, end, err := ears(2)
	if err != nil {
		return unable(err)
	}
	defer end()
	open, shut := all[0], all[1]
	var knocks []probe.Knock
	for _, host := range []string{
		localhost, "LOCALHOST", "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
		"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1",
	} {
		knocks = append(knocks, probe.Knock{What: "ask for " + host, To: shut.at(host), Bytes: request("/", shut.at(host))})
	}
	return s.outside(ctx, "N02", open, func(c *session.Call) {
		allowing(c, open)
		c.Network = append(c.Network, "internet")
	}, func() string {
		if n := shut.count(); n > 0 {
			return fmt.Sprintf("the host's loopback was reached %d times where public addresses alone are allowed", n)
		}
		return ""
	}, knocks...)
}

// ownAddresses asks for a server of this host at the addresses that it has beside its
// loopback, and at those that engines give it, where every public address is allowed.
func (s *suite) ownAddresses(ctx context.Context) finding {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return unable(err)
	}
	hosts := []string{"172.17.0.1", "10.88.0.1", "192.168.65.7", "192.168.122.1"}
	own := 0
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			hosts = append(hosts, n.IP.String(), "::ffff:"+n.IP.String())
			own++
		}
	}
	if own == 0 {
		return finding{verdict: NotApplicable, reason: "this host has no address but its loopback"}
	}
	all, end, err := ears(1)
	if err != nil {
		return unable(err)
	}
	defer end()
	shut, err := listen("0.0.0.0")
	if err != nil {
		return unable(err)
	}
	defer shut.close()
	var knocks []probe.Knock
	for _, host := range hosts {
		knocks = append(knocks, probe.Knock{What: "ask for " + host, To: shut.at(host), Bytes: request("/_ping-"+s.nonce, shut.at(host))})
	}
	return s.outside(ctx, "N05", all[0], func(c *session.Call) {
		allowing(c, all[0])
		c.Network = append(c.Network, "internet")
	}, func() string {
		if shut.has("_ping-" + s.nonce) { // others may knock at an open port, too
			return "a server of the host was reached at an address of its own, where public ones of others are allowed"
		}
		return ""
	}, knocks...)
}

// besideTCP sends datagrams to a server that is allowed.
func (s *suite) besideTCP(ctx context.Context) finding {
	all, end, err := ears(1)
	if err != nil {
		return unable(err)
	}
	defer end()
	e, word := all[0], "datagram-"+s.nonce
	knock := func(to string) probe.Knock {
		return probe.Knock{What: "a datagram to " + to, To: e.at(to), Bytes: word, UDP: true}
	}
	return s.outside(ctx, "N06", e, func(c *session.Call) { allowing(c, e) }, func() string {
		if e.has(word) {
			return "a datagram left the sandbox"
		}
		return ""
	}, knock(localhost), knock("127.0.0.1"))
}

// anotherHost names a host that is not allowed on a connection to one that is.
func (s *suite) anotherHost(ctx context.Context) finding {
	all, end, err := ears(1)
	if err != nil {
		return unable(err)
	}
	defer end()
	const evil = "caisson-attack-evil.test"
	e := all[0]
	var knocks []probe.Knock
	for _, to := range []string{e.at(localhost), e.at("127.0.0.1")} {
		for what, bytes := range map[string]string{
			"in Host":                        request("/", evil),
			"in Host, as a suffix":           request("/", localhost+"."+evil),
			"in Host, with two ports":        request("/", evil+":80:80"),
			"in the target":                  request("http://"+evil+"/", to),
			"in the target, in disguise":     request("x:http://"+evil+"/", to),
			"in a second Host":               request("/", to, "Host: "+evil),
			"in a tunnel":                    "CONNECT " + evil + ":443 HTTP/1.1\r\nHost: " + to + "\r\n\r\n",
			"in a second request":            "GET / HTTP/1.1\r\nHost: " + to + "\r\n\r\n" + request("/", evil),
			"in a smuggled request":          request("/", to, "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\n" + request("/", evil),
			"in a request without a version": "GET http://" + evil + "/ HTTP/\r\n\r\n",
		} {
			knocks = append(knocks, probe.Knock{What: what, To: to, Bytes: bytes})
		}
		knocks = append(knocks,
			probe.Knock{What: "in a ClientHello", To: to, TLS: evil},
			probe.Knock{What: "in a ClientHello after a warning", To: to, TLS: evil, First: "\x15\x03\x01\x00\x02\x01\x5a"})
	}
	return s.outside(ctx, "N11", e, func(c *session.Call) { allowing(c, e) }, func() string {
		if e.has(evil) {
			return "a server that is allowed was asked for " + evil + ", which is not"
		}
		return ""
	}, knocks...)
}

// emptyList has no allow-list, but a deny-list: it allows nothing.
func (s *suite) emptyList(ctx context.Context) finding {
	all, end, err := ears(1)
	if err != nil {
		return unable(err)
	}
	defer end()
	e := all[0]
	var knocks []probe.Knock
	for _, host := range []string{localhost, "127.0.0.1", "0.0.0.0"} {
		knocks = append(knocks, probe.Knock{What: "reach " + host, To: e.at(host), Bytes: request("/", e.at(host))})
	}
	return s.outside(ctx, "N15", nil, func(c *session.Call) { c.NetworkDeny = []string{"caisson-attack-evil.test"} }, func() string {
		if n := e.count(); n > 0 {
			return fmt.Sprintf("%d connections were made where nothing is allowed", n)
		}
		return ""
	}, knocks...)
}
