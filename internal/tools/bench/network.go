// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// networkLevels are those whose networks are measured.
var networkLevels = []string{"gvisor", "process"}

// networkRows are about what goes through the router, with a client inside and
// a server on this machine's loopback, beside the same client outside.
func (s *stage) networkRows() (list []bench) {
	for _, level := range networkLevels {
		list = append(list,
			s.client(level, "download", "≥ 150 MB/s", "MB/s"),
			s.client(level, "connect", "≤ 2 ms over direct", "ms"),
			s.client(level, "dns", "≤ 1 ms", "ms"),
			s.terminated(level, "connection"),
			s.terminated(level, "kept"),
			s.ended(level, "connection"),
			s.ended(level, "kept"),
			s.connected(level),
			s.begun(level),
			s.used(level))
	}
	return list
}

// downloadSize is how much one run downloads, in bytes.
const downloadSize = 256 << 20

// client does one thing and prints a figure: MB/s, or the median of 100 in ms.
// The name localhost is asked for by hand, because the file of hosts inside has
// it, too.
const client = `
import socket, struct, sys, time
what, port, inside = sys.argv[1], int(sys.argv[2]), sys.argv[3] == 'inside'
def ask():
    q.sendto(struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + b'\x09localhost\0' + struct.pack('>2H', 1, 1), ('198.18.0.1', 53))
    return socket.inet_ntoa(q.recv(500)[-4:])
def median(f):
    took = []
    for _ in range(100):
        began = time.perf_counter(); f(); took.append(time.perf_counter() - began)
    return sorted(took)[50] * 1e3
host = '127.0.0.1'
if inside:
    q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); q.settimeout(10)
    host = ask()
dial = lambda: socket.create_connection((host, port), 10)
if what == 'connect': print(median(lambda: dial().close()))
elif what == 'dns': print(median(ask) if inside else 0)
else:
    c, n, size = dial(), 0, int(sys.argv[4])
    b = bytearray(256 << 10)
    began = time.perf_counter()
    c.sendall(b'%d\n' % size)
    while k := c.recv_into(b): n += k
    print(n / 1e6 / (time.perf_counter() - began) if n == size else -1)
`

// client measures one figure of a client.
func (s *stage) client(level, what, goal, unit string) bench {
	return bench{fmt.Sprintf("%s through the router, %s level, beside a direct one", what, level), func(ctx context.Context) row {
		u := s.users[0]
		r := row{who: u.name, goal: goal, runs: fmt.Sprint(s.o.rounds)}
		port, stop, err := source()
		if err != nil {
			r.notes = append(r.notes, err.Error())
			return r
		}
		defer stop()
		var ours, theirs []float64
		argv := func(where string) []string {
			return []string{"/usr/bin/python3", "-I", "-S", "-c", client, what, port, where, fmt.Sprint(downloadSize)}
		}
		for range s.o.rounds {
			a, err := figure(s.caisson(ctx, u, append([]string{"run", "--isolation", level,
				"--allow", "localhost:" + port, "--allow", "127.0.0.1:" + port, "--"}, argv("inside")...)...))
			if err == nil {
				var b float64
				direct := argv("outside")
				b, err = figure(exec.CommandContext(ctx, direct[0], direct[1:]...))
				theirs = append(theirs, b)
			}
			if err != nil {
				r.notes = append(r.notes, err.Error())
				return r
			}
			ours = append(ours, a)
		}
		r.ours, r.theirs = fmt.Sprintf("%.3g %s", median(ours), unit), fmt.Sprintf("%.3g %s", median(theirs), unit)
		if what == "dns" {
			r.theirs = ""
		}
		return r
	}}
}

// source is a server that sends as many bytes as it is asked for.
func source() (port string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
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
				line, err := bufio.NewReader(c).ReadString('\n')
				left, nerr := strconv.Atoi(strings.TrimSpace(line))
				for b := make([]byte, 256<<10); err == nil && nerr == nil && left > 0; left -= len(b) {
					_, err = c.Write(b[:min(left, len(b))])
				}
			})
		}
	})
	_, port, err = net.SplitHostPort(l.Addr().String())
	return port, func() { l.Close(); conns.Wait() }, err
}

// begun measures what such a network costs at the start: from the start of the command to
// the first byte of the program.
func (s *stage) begun(level string) bench {
	return bench{fmt.Sprintf("start to first byte of /bin/echo with a network, %s level, beside one without", level), func(ctx context.Context) row {
		u := s.users[0]
		run := func(flags ...string) once {
			return s.untilFirstByte(func(ctx context.Context) *exec.Cmd {
				return s.caisson(ctx, u, append(append(append([]string{"run", "--isolation", level}, flags...), "--"), echo...)...)
			})
		}
		r := interleave(ctx, s.o.pairs, run("--allow", "example.com"), run()).row("≤ 0.5 ms more")
		r.who = u.name
		return r
	}}
}

// connected measures what an unused network costs: a wire, and for the process level a
// device; its router would be started by the first packet.
func (s *stage) connected(level string) bench {
	return bench{fmt.Sprintf("whole run of \"/bin/true\" with a network, %s level, beside one without", level), func(ctx context.Context) row {
		u := s.users[0]
		run := func(flags ...string) once {
			return timed(func(ctx context.Context) *exec.Cmd {
				return s.caisson(ctx, u, append(append([]string{"run", "--isolation", level}, flags...), "--", "/bin/true")...)
			})
		}
		r := interleave(ctx, s.o.pairs, run("--allow", "example.com"), run()).row("≤ 0.5 ms more")
		r.who = u.name
		return r
	}}
}

// connecting asks for a name and connects to it, as programs do that have a network for
// something; without one it is its own resolver and host, so that what Python takes for
// these calls (10 ms on gVisor, most of it for an import) is on both sides.
const connecting = `
import socket, struct, sys
q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); q.settimeout(10)
ask = struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + b'\x09localhost\0' + struct.pack('>2H', 1, 1)
if len(sys.argv) > 1:
    resolver, port = ('198.18.0.1', 53), int(sys.argv[1])
    q.sendto(ask, resolver)
else:
    r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(('127.0.0.1', 0))
    host = socket.create_server(('127.0.0.1', 0)); port = host.getsockname()[1]
    q.sendto(ask, r.getsockname())
    _, who = r.recvfrom(500)
    r.sendto(bytes([127, 0, 0, 1]), who)
socket.create_connection((socket.inet_ntoa(q.recv(500)[-4:]), port), 10).close()
`

// used measures what a network costs a program that connects to a host as the first
// thing that it does.
func (s *stage) used(level string) bench {
	return bench{fmt.Sprintf("whole run of a program that connects to a host, %s level, beside one without a network that connects to itself", level), func(ctx context.Context) row {
		u := s.users[0]
		port, stop, err := source()
		if err != nil {
			return row{who: u.name, notes: []string{err.Error()}}
		}
		defer stop()
		run := func(flags []string, args ...string) once {
			return timed(func(ctx context.Context) *exec.Cmd {
				argv := append([]string{"run", "--isolation", level}, flags...)
				return s.caisson(ctx, u, append(append(argv, "--", "/usr/bin/python3", "-I", "-S", "-c", connecting), args...)...)
			})
		}
		r := interleave(ctx, s.o.pairs, run([]string{"--allow", "localhost:" + port, "--allow", "127.0.0.1:" + port}, port), run(nil)).row("≤ 8 ms more")
		r.who = u.name
		return r
	}}
}
