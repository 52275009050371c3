// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
)

// counter is a server that reads all that comes and says nothing.
type counter struct {
	l       net.Listener
	port    int
	serving sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // open
	total int                   // connections in all
	peak  int                   // at one time
	bytes int64
}

func count() (*counter, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{l: l, port: l.Addr().(*net.TCPAddr).Port, conns: map[net.Conn]struct{}{}}
	c.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.serving.Go(func() { c.serve(conn) })
		}
	})
	return c, nil
}

func (c *counter) serve(conn net.Conn) {
	defer conn.Close()
	c.mu.Lock()
	c.conns[conn] = struct{}{}
	c.total++
	c.peak = max(c.peak, c.alive())
	c.mu.Unlock()
	b := make([]byte, 64<<10)
	for {
		n, err := conn.Read(b)
		c.mu.Lock()
		if c.bytes += int64(n); err != nil {
			delete(c.conns, conn)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// alive counts the connections that are open. On a busy machine those are still in
// the list that have ended and were not read to their end: where there are more than
// a flood may have, the kernel is asked what each of them is. It is called with mu
// held.
func (c *counter) alive() int {
	if len(c.conns) <= floodAtOnce {
		return len(c.conns)
	}
	n := 0
	for conn := range c.conns {
		if !ended(conn) {
			n++
		}
	}
	return n
}

// ended says that the other end of a TCP connection has said its last.
func ended(conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	const established = 1 // TCP_ESTABLISHED of <linux/tcp.h>
	var info *unix.TCPInfo
	if cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); cerr != nil || err != nil {
		return cerr != nil // closed here
	}
	return info.State != established
}

func (c *counter) close() {
	c.l.Close()
	c.mu.Lock()
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.serving.Wait()
}

// now is what it has seen.
func (c *counter) now() (open, total, peak int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns), c.total, c.peak, c.bytes
}

// until waits for something to be seen.
func (c *counter) until(what func(open, total int) bool, d time.Duration) bool {
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		if open, total, _, _ := c.now(); what(open, total) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// allowances are entries for a server on the host's loopback.
func (c *counter) allowances() string {
	return fmt.Sprintf("%q, %q", c.at(localhost), c.at("127.0.0.1"))
}

func (c *counter) at(host string) string { return net.JoinHostPort(host, fmt.Sprint(c.port)) }

// swapped takes an allowed host away from a sandbox that has a connection to it.
func (s *suite) swapped(ctx context.Context) finding {
	if s.Again == nil {
		return finding{verdict: NotApplicable, reason: "this program does not start a second caisson"}
	}
	if f := s.wired(ctx); f != nil {
		return *f
	}
	host, err := count()
	if err != nil {
		return unable(err)
	}
	defer host.close()
	d, err := s.serve(ctx, fmt.Sprintf("version: 1\nisolation: %s\nnetwork: {allow: [%s]}\nfiles: {mounts: [{source: %q, target: %s}]}\n",
		s.Isolation, host.allowances(), s.Program, probe.AtProbe))
	if err != nil {
		return unable(err)
	}
	defer d.stop()
	id, err := d.create(ctx, nil)
	if err != nil {
		return unable(err)
	}
	ran := make(chan error, 1)
	go func() {
		ran <- d.ask(ctx, "POST", "/v1/sandboxes/"+id+"/exec", map[string]any{
			"command": []string{probe.AtProbe, probe.Word, probe.ModeHold, host.at(localhost), resolver, s.nonce}, "timeout": probeTimeout.Seconds(),
		}, nil)
	}()
	if !host.until(func(open, _ int) bool { return open == 1 }, probeTimeout) {
		select {
		case err := <-ran:
			return unable(fmt.Errorf("the connection that is allowed did not arrive: %v", err))
		default:
			return unable(fmt.Errorf("the connection that is allowed did not arrive"))
		}
	}
	if err := d.ask(ctx, "PUT", "/sandboxes/"+id+"/network", map[string]any{"allow_internet_access": false}, nil); err != nil {
		return unable(err)
	}
	if !host.until(func(open, _ int) bool { return open == 0 }, probeTimeout/3) {
		return breach("a connection stayed open to a host that is not allowed any more")
	}
	if err := <-ran; err != nil { // it has tried to come back
		return unable(err)
	}
	if _, total, _, _ := host.now(); total != 1 {
		return breach("a host that is not allowed any more was connected to again")
	}
	return pass()
}
