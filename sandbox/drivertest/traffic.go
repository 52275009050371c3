// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/egress/wire"
)

// serve is a server of this host's loopback that hands each connection to f, and
// closes it then.
func serve(t *testing.T, f func(net.Conn)) (port string) {
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
				f(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// answered is for scripts that ask for names which may not exist: the address,
// or what the resolver says instead.
const answered = `
def answer(name):
    q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); q.settimeout(60)
    labels = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.'))
    q.sendto(struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>2H', 1, 1), (gateway, 53))
    b = q.recv(500)
    code, n = b[3] & 15, struct.unpack('>H', b[6:8])[0]
    return socket.inet_ntoa(b[-4:]) if code == 0 and n == 1 else {0: 'nothing', 3: 'NXDOMAIN', 5: 'REFUSED'}.get(code, str(code))
`

// testNetworkNames: an entry for names below one is for those alone, whatever
// their case, and with its port; every port has to be written.
func testNetworkNames(t *testing.T, s *suite, r road) {
	greet := func(c net.Conn) { fmt.Fprintln(c, "host"); _, _ = io.Copy(io.Discard, c) }
	w, router := s.routed(t, egress.Options{}, "*.wild.example.com:8443", "localhost:*", "127.0.0.1:*")
	var got struct {
		Answers   map[string]string
		Greetings []string
		Same      bool
		Port      string
	}
	w.python(t, r, onNetwork+answered+`
names = ['a.wild.example.com', 'a.b.wild.example.com', 'wild.example.com', 'evilwild.example.com', 'a.wild.example.com.evil.test', 'example.com']
answers = {n: answer(n) for n in names}
host = query('localhost')
say({'answers': {n: 'an address' if a.startswith('198.1') else a for n, a in answers.items()},
     'same': answer('A.WILD.Example.com') == answers[names[0]] != answers[names[1]],
     'greetings': [dial((host, int(p))).recv(100).decode().strip() for p in sys.argv[1:]],
     'port': attempt(dial, (answers[names[0]], 443))})`, &got, serve(t, greet), serve(t, greet))
	want := map[string]string{
		"a.wild.example.com": "an address", "a.b.wild.example.com": "an address", "wild.example.com": "NXDOMAIN",
		"evilwild.example.com": "NXDOMAIN", "a.wild.example.com.evil.test": "NXDOMAIN", "example.com": "NXDOMAIN",
	}
	if !maps.Equal(got.Answers, want) {
		t.Errorf("the answers are %v, want %v", got.Answers, want)
	}
	if !got.Same {
		t.Error("a name in other letters is another name, or two names have one address")
	}
	if len(got.Greetings) != 2 || got.Greetings[0] != "host" || got.Greetings[1] != "host" {
		t.Errorf("the greetings are %q", got.Greetings)
	}
	if got.Port != "ECONNREFUSED" {
		t.Errorf("another port than the entry's: %s", got.Port)
	}
	if rep := router.Close(); len(rep.Connections) != 2 || rep.Incomplete {
		t.Errorf("the report is %+v", rep)
	}
}

// testNetworkBudgets: each budget lets through what it says, and then the network
// is closed, for everything.
func testNetworkBudgets(t *testing.T, s *suite, r road) {
	const maximum = 200_000
	for name, tc := range map[string]struct {
		budget  wire.Budget
		maximum int // steps that may succeed
	}{
		"egress":      {wire.Budget{Egress: maximum}, 100_000}, // what is sent waits in buffers, which have a bound
		"dns_queries": {wire.Budget{Queries: 5}, 4},
		"connections": {wire.Budget{Connections: 3}, 3},
	} {
		ended := make(chan string, 1)
		heard := make(chan int64, 100) // of each connection, when it has ended
		port := serve(t, func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			heard <- n
		})
		w, router := s.routed(t, egress.Options{Budget: tc.budget, Ended: func(budget string, _ error) { ended <- budget }}, "localhost:"+port, "127.0.0.1:"+port)
		var got struct {
			Steps int
			Again bool
		}
		w.python(t, r, onNetwork+`
to = (query('localhost'), int(sys.argv[2]))
def again(wait):
    with socket.socket() as c: c.settimeout(wait); c.connect(to)
def send(c=[]):
    if not c: c.append(dial(to))
    c[0].sendall(bytes(1000)) # nothing that could become a request
step = {'egress': send, 'dns_queries': lambda: query('localhost', None, 60 if steps < 4 else 1), 'connections': lambda: again(60 if steps < 3 else 1)}[sys.argv[1]]
steps = 0
try:
    while steps < 10**5: step(); steps += 1
except OSError: pass
say({'steps': steps, 'again': attempt(again, 1) is None})`, &got, name, port)
		select {
		case which := <-ended:
			if which != name {
				t.Errorf("%s: the budget %s is used up", name, which)
			}
		case <-timeout(t).Done():
			t.Fatalf("%s: nobody is told: %+v", name, got)
		}
		if got.Steps == 0 || got.Steps > tc.maximum || got.Again {
			t.Errorf("%s: %+v", name, got)
		}
		rep := router.Close()
		if b := tc.budget.Egress; b > 0 {
			var n int64
			select {
			case n = <-heard:
			case <-timeout(t).Done():
			}
			if n == 0 || n > b || rep.Totals.Sent > b {
				t.Errorf("%d bytes came through, %d were counted, of %d", n, rep.Totals.Sent, b)
			}
		}
		if b := tc.budget.Connections; b > 0 && rep.Totals.Connections != b {
			t.Errorf("%d connections were made, of %d", rep.Totals.Connections, b)
		}
	}
}

// testNetworkBandwidth: by the clock of who gets them, no more bytes have come
// than there was time for. However slow a machine is, that holds; without
// shaping all of them are there at once.
func testNetworkBandwidth(t *testing.T, s *suite, r road) {
	const perSecond, size = 256 << 10, 384 << 10
	type arrival struct {
		n    int
		took time.Duration
	}
	up := make(chan arrival, 1)
	port := serve(t, func(c net.Conn) {
		began := time.Now()
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Error(err)
		}
		n, _ := io.Copy(io.Discard, c)
		up <- arrival{int(n), time.Since(began)}
	})
	w, router := s.routed(t, egress.Options{Budget: wire.Budget{Bandwidth: perSecond}}, "localhost:"+port, "127.0.0.1:"+port)
	var got struct {
		Received int
		Seconds  float64
	}
	w.python(t, r, onNetwork+`
import threading
to, size, n = (query('localhost'), int(sys.argv[1])), int(sys.argv[2]), 0
began = time.monotonic()
c = dial(to); c.settimeout(60)
threading.Thread(target=lambda: (c.sendall(bytes(size)), c.shutdown(socket.SHUT_WR))).start()
while k := len(c.recv(65536)): n += k
say({'received': n, 'seconds': time.monotonic() - began})`, &got, port, fmt.Sprint(size))
	router.Close()
	sent := <-up
	for what, a := range map[string]arrival{"down": {got.Received, time.Duration(got.Seconds * float64(time.Second))}, "up": sent} {
		// What may come at once is a tenth of a second's, or one piece of 64 KiB;
		// two clocks need not be one.
		if maximum := 64<<10 + a.took.Seconds()*1.05*perSecond; a.n != size || float64(a.n) > maximum {
			t.Errorf("%s: %d of %d bytes in %v, where %.0f can be", what, a.n, size, a.took, maximum)
		}
	}
}
