// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

var networkTests = []test{
	{name: "there is none", run: testNoNetwork},
	{name: "one that an allow-list closes", run: testNetwork},
	{name: "names below one, and every port of one", run: testNetworkNames},
	{name: "a budget that is used up closes it", run: testNetworkBudgets},
	{name: "no more bytes than the bandwidth has time for", run: testNetworkBandwidth},
	{name: "rules that change close connections", run: testNetworkChange},
	{name: "the router's death closes it", run: testNetworkLost},
}

func testNoNetwork(t *testing.T, s *suite, r road) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	any4, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer any4.Close()
	abstract, err := net.Listen("unix", fmt.Sprintf("@drivertest-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	port := func(l net.Listener) string { return fmt.Sprint(l.Addr().(*net.TCPAddr).Port) }

	got := map[string]any{}
	s.fixture(t).python(t, r, `
def dial(family, addr, kind=socket.SOCK_STREAM):
    def f():
        k = socket.socket(family, kind); k.settimeout(3)
        k.connect(addr)
        if kind == socket.SOCK_DGRAM: k.send(b'x')
    return f
a, b, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
own = mine(a, b)
tries = {
  'loopback of the host': dial(socket.AF_INET, ('127.0.0.1', a)), 'any of the host': dial(socket.AF_INET, ('127.0.0.1', b)),
  'abstract socket': dial(socket.AF_UNIX, '\0' + name), 'address': dial(socket.AF_INET, ('192.0.2.1', 80)),
  'metadata': dial(socket.AF_INET, ('169.254.169.254', 80)), 'udp': dial(socket.AF_INET, ('192.0.2.1', 53), socket.SOCK_DGRAM),
  'ipv6': dial(socket.AF_INET6, ('2001:db8::1', 80)), 'name': lambda: socket.getaddrinfo('example.com', 80),
  'packet socket': lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), 'raw socket': lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
}
reached = [k for k, f in tries.items() if attempt(f) is None]
say({'reached': reached, 'interfaces': sorted(n for _, n in socket.if_nameindex()), 'own': attempt(dial(socket.AF_INET, own.getsockname()))})`,
		&got, port(tcp), port(any4), strings.TrimPrefix(abstract.Addr().String(), "@"))
	if list, _ := got["reached"].([]any); len(list) > 0 {
		t.Errorf("reached: %v", list)
	}
	if list, _ := got["interfaces"].([]any); len(list) > 1 || len(list) == 1 && list[0] != "lo" {
		t.Errorf("interfaces: %v", list)
	}
	if got["own"] != nil {
		t.Errorf("its own loopback does not work: %v", got["own"])
	}
}

// connected is a fixture with a network that leads to port of this host's
// loopback by the name localhost, and by allowed.example.com to no address. The
// router may be closed when the sandbox is gone; lost is closed when it ends
// before that.
func (s *suite) connected(t *testing.T, port string) (_ *fixture, _ *egress.Router, lost <-chan struct{}) {
	t.Helper()
	ended := make(chan struct{})
	w, router := s.routed(t, egress.Options{Ended: func(string, error) { close(ended) }}, "localhost:"+port, "127.0.0.1:"+port, "allowed.example.com")
	return w, router, ended
}

// routed is a fixture with a network by these options and this allow-list.
func (s *suite) routed(t *testing.T, o egress.Options, allow ...string) (*fixture, *egress.Router) {
	t.Helper()
	if !s.caps.Network {
		s.lacks(t, s.caps.NoNetwork.Detail)
	}
	o.Wire = s.caps.Wire
	for _, entry := range allow {
		o.Rules.Allow = append(o.Rules.Allow, wire.Entry{Text: entry})
	}
	router, err := egress.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { router.Close() })
	if err := router.Started(); err != nil { // not Ready: its first packet starts it
		t.Fatal(err)
	}
	return s.fixture(t, func(spec *sandbox.Spec) {
		spec.Network = &sandbox.Network{NIC: router.NIC(), Address: egress.Guest, Gateway: egress.Gateway, MTU: egress.MTU}
	}), router
}

// greeter is a server of this host that says host to everybody, and then waits.
func greeter(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				fmt.Fprintln(c, "host")
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// onNetwork is what scripts on a network use. localhost is asked for by hand:
// the file of hosts inside has a localhost, too.
const onNetwork = `
import struct, fcntl
gateway = '198.18.0.1'
def query(name, source=None, wait=60):
    q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); q.settimeout(wait)
    if source: q.bind((source, 0))
    labels = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.'))
    q.sendto(struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>2H', 1, 1), (gateway, 53))
    if not source: return socket.inet_ntoa(q.recv(500)[-4:])
def dial(addr, family=socket.AF_INET):
    c = socket.socket(family); c.settimeout(60); c.connect(addr); return c
`

// testNetworkEdges: a network that is not used has no router; what a program sends
// as the last thing that it does has one, and is read.
func testNetworkEdges(t *testing.T, s *suite, r road) {
	w, router := s.routed(t, egress.Options{}, "allowed.example.com")
	var got struct{ Interfaces []string }
	w.python(t, r, `say({'interfaces': sorted(n for _, n in socket.if_nameindex())})`, &got)
	if rep := router.Close(); router.PID() != 0 || rep.Incomplete || !slices.Equal(got.Interfaces, []string{"eth0", "lo"}) {
		t.Errorf("process %d, %+v; %v", router.PID(), rep, got.Interfaces)
	}
	w, router = s.routed(t, egress.Options{}, "allowed.example.com")
	w.python(t, r, `say({}); socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))`, &got)
	if rep := router.Close(); rep.Incomplete || len(rep.Refused) != 1 || rep.Refused[0].Address != "192.0.2.1" {
		t.Errorf("%+v", rep)
	}
}

// testNetwork: the name that is allowed is reached, and nothing else by any
// other way.
func testNetwork(t *testing.T, s *suite, r road) {
	testNetworkEdges(t, s, r)
	port := greeter(t)
	w, router, _ := s.connected(t, port)
	var got struct {
		Greeting, Allowed  string
		Interfaces, Opened []string
		Answers            map[string]string
	}
	w.python(t, r, onNetwork+`
port = int(sys.argv[1])
c = dial((query('localhost'), port))
allowed = socket.getaddrinfo('allowed.example.com', 80, socket.AF_INET)[0][4][0]
own = mine(port)
def name():
    try: socket.getaddrinfo('other.example.com', 80)
    except socket.gaierror as e: raise OSError(0, e.errno == socket.EAI_NONAME and 'NXDOMAIN' or str(e))
def send(addr, source=None):
    q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); q.connect(addr); q.send(b'x')
def ping():
    q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); q.sendto(b'\x08\0\xf7\xff\0\0\0\0', ('192.0.2.1', 0)); q.settimeout(1); q.recv(100)
def device():
    fcntl.ioctl(open('/dev/net/tun', 'r+b', 0), 0x400454ca, struct.pack('16sH22x', b'eth1', 0x1001)) # TUNSETIFF
def readdress():
    q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(q, 0x8916, struct.pack('16sHH4s16x', b'eth0', 2, 0, bytes([198, 18, 0, 9]))) # SIOCSIFADDR
def said(f):
    try: f()
    except OSError as e: return errno.errorcode.get(e.errno, e.strerror or 'timeout')
    return 'ok'
answers = {k: said(f) for k, f in {
  'own loopback': lambda: dial(own.getsockname()), 'loopback of the host': lambda: dial(('127.0.0.1', port)),
  'another port': lambda: dial((query('localhost'), port ^ 1)), 'an address': lambda: dial(('192.0.2.1', 80)),
  'metadata': lambda: dial(('169.254.169.254', 80)), 'the gateway': lambda: dial((gateway, 53)),
  'no name for it': lambda: dial(('198.19.255.1', port)), 'another name': name,
  'udp': lambda: send(('192.0.2.1', 53)), 'another source': lambda: query('spoofed.example.com', '127.0.0.1'),
}.items()}
opened = [k for k, f in {
  'ipv6': lambda: dial(('2001:db8::1', 80), socket.AF_INET6), 'icmp': ping,
  'packet socket': lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), 'raw socket': lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6),
  'another device': device, 'another address': readdress,
  'forwarding': lambda: put('/proc/sys/net/ipv4/ip_forward', b'1'), 'ipv6 again': lambda: put('/proc/sys/net/ipv6/conf/eth0/disable_ipv6', b'0'),
}.items() if said(f) == 'ok']
query('last.example.com') # what was sent before has been read when this is answered
say({'greeting': c.recv(100).decode().strip(), 'allowed': allowed, 'answers': answers, 'opened': opened,
     'interfaces': sorted(n for _, n in socket.if_nameindex())})`, &got, port)
	const refused = "ECONNREFUSED"
	want := map[string]string{
		"own loopback": "ok", "loopback of the host": refused, "another port": refused, "an address": refused, "metadata": refused,
		"the gateway": refused, "no name for it": refused, "another name": "NXDOMAIN", "udp": "ok",
	}
	for what, answer := range want {
		if got.Answers[what] != answer {
			t.Errorf("%s: %s, want %s", what, got.Answers[what], answer)
		}
	}
	if got.Greeting != "host" || !strings.HasPrefix(got.Allowed, "198.1") || len(got.Opened) > 0 || !slices.Equal(got.Interfaces, []string{"eth0", "lo"}) {
		t.Errorf("%+v", got)
	}
	rep := router.Close()
	if len(rep.Connections) != 1 || rep.Connections[0].Host != "localhost" || rep.Incomplete {
		t.Errorf("the connections are %+v", rep.Connections)
	}
	attempt := func(p wire.Protocol, what string) bool {
		return slices.ContainsFunc(rep.Refused, func(r wire.Record) bool { return r.Protocol == p && (r.Host == what || r.Address == what) })
	}
	if !attempt(wire.UDP, "192.0.2.1") || !attempt(wire.DNS, "other.example.com") || !attempt(wire.TCP, "192.0.2.1") || !attempt(wire.DNS, "last.example.com") {
		t.Errorf("attempts are missing: %+v", rep.Refused)
	}
	if attempt(wire.DNS, "spoofed.example.com") {
		t.Error("a packet from another address was taken for the sandbox's")
	}
}

// testNetworkChange: what is no longer allowed ends.
func testNetworkChange(t *testing.T, s *suite, r road) {
	port := greeter(t)
	w, router, _ := s.connected(t, port)
	x := w.exec("python3", "-I", "-S", "-c", prelude+onNetwork+`
to = (query('localhost'), int(sys.argv[1]))
c = dial(to)
print(c.recv(100).decode().strip(), flush=True)
try: print('more:', c.recv(100))
except OSError as e: print(errno.errorcode[e.errno])
print(attempt(dial, to))`, port)
	read, write := io.Pipe()
	x.Stdout = write
	lines := bufio.NewScanner(read)
	heard := make(chan []string, 1)
	go func() {
		var all []string
		for lines.Scan() {
			if all = append(all, lines.Text()); len(all) == 1 {
				if err := router.Change(t.Context(), wire.Rules{}); err != nil {
					all = append(all, err.Error())
				}
			}
		}
		heard <- all
	}()
	o := w.start(t, timeout(t), r, x)
	write.Close()
	if got := <-heard; !slices.Equal(got, []string{"host", "ECONNRESET", "ECONNREFUSED"}) {
		t.Errorf("%q\n%s\n%s", got, o.describe(), o.errs)
	}
	router.Close()
}

// testNetworkLost: without a router there is no network, whatever the level
// makes of that.
func testNetworkLost(t *testing.T, s *suite, r road) {
	w, router, lost := s.connected(t, greeter(t))
	x := w.exec("python3", "-I", "-S", "-c", prelude+onNetwork+`
print(attempt(query, 'allowed.example.com'), flush=True)
sys.stdin.readline()
print(attempt(query, 'allowed.example.com', None, 0.3) is not None)`)
	in, tell := pipe(t)
	x.Stdin = in
	read, write := io.Pipe()
	x.Stdout = write
	heard := make(chan []string, 1)
	go func() {
		var all []string
		for lines := bufio.NewScanner(read); lines.Scan(); {
			if all = append(all, lines.Text()); len(all) > 1 {
				continue
			}
			if err := syscall.Kill(router.PID(), syscall.SIGKILL); err != nil {
				all = append(all, err.Error())
			}
			<-lost
			fmt.Fprintln(tell)
		}
		heard <- all
	}()
	o := w.start(t, timeout(t), r, x)
	write.Close()
	if got := <-heard; !slices.Equal(got, []string{"None", "True"}) {
		t.Errorf("%q\n%s\n%s", got, o.describe(), o.errs)
	}
	if rep := router.Close(); !rep.Incomplete {
		t.Errorf("its report is whole: %+v", rep)
	}
}
