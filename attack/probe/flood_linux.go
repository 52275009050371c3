// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// The kinds of a flood.
const (
	FloodConnections = "connections"
	FloodBytes       = "bytes"
	FloodHeads       = "heads"
)

// How much a flood tries, which is more than any sandbox may have.
const (
	floodTries = 400
	floodHeads = 1200
	floodBytes = 64 << 20
	floodTime  = 25 * time.Second
)

// dialer is a host as the sandbox's resolver knows it.
func dialer(to, resolver string) (func() (net.Conn, error), error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	if host, err = lookup(resolver, host, mustTime); err != nil {
		return nil, err
	}
	return func() (net.Conn, error) { return net.DialTimeout("tcp", net.JoinHostPort(host, port), knockTime) }, nil
}

// flood uses a host without end.
func flood(kind, to, resolver string) int {
	dial, err := dialer(to, resolver)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	switch kind {
	case FloodConnections:
		persist(func() (int, error) {
			c, err := dial()
			if err == nil {
				_, _ = c.Write([]byte("flood"))
				c.Close()
			}
			return 1, err
		}, floodTries)
	case FloodBytes:
		var c net.Conn
		b := make([]byte, 64<<10)
		persist(func() (n int, err error) {
			if c == nil {
				if c, err = dial(); err != nil {
					return 0, err
				}
			}
			if n, err = c.Write(b); err != nil {
				c.Close()
				c = nil
			}
			return n, err
		}, floodBytes)
	case FloodHeads:
		heads(dial)
	}
	say(Try{Case: CaseReady})
	return 0
}

// persist does something until it has done enough, or for as long as one takes to
// be ended for it.
func persist(do func() (int, error), enough int) {
	end := time.Now().Add(floodTime)
	for done := 0; done < enough && time.Now().Before(end); {
		n, err := do()
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		done += n
	}
}

// heads begins requests that do not end, all at once, each with a head that is
// longer than a server should read.
func heads(dial func() (net.Conn, error)) {
	var all sync.WaitGroup
	line := "X-Flood: " + strings.Repeat("f", 8<<10) + "\r\n"
	for range floodHeads {
		all.Go(func() {
			c, err := dial()
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * knockTime))
			_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n")
			for n := 0; n < 64 && err == nil; n++ {
				_, err = io.WriteString(c, line)
			}
			_, _ = io.Copy(io.Discard, c)
		})
	}
	all.Wait()
}

// hold keeps a connection until it is taken away, and tries to have it back.
func hold(to, resolver string) int {
	dial, err := dialer(to, resolver)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := dial()
	for err == nil {
		if _, err = c.Write([]byte(".")); err == nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
	for range 20 {
		if c, err := dial(); err == nil {
			_, _ = c.Write([]byte("again"))
			c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 0
}

// listen waits for who comes, by every way there is, until its input ends. It has
// come to itself before it says that it is ready.
func listen(port, name string) int {
	tcp, err := net.Listen("tcp", ":"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	udp, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	self := make(chan struct{}, 1)
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(knockTime))
				if line, _ := bufio.NewReader(c).ReadString('\n'); line == name+"\n" {
					self <- struct{}{}
					return
				}
				say(Try{Case: "N16", What: "TCP from " + c.RemoteAddr().String(), Got: true})
			}()
		}
	}()
	go func() {
		for b := make([]byte, 64); ; {
			_, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			say(Try{Case: "N16", What: "UDP from " + from.String(), Got: true})
		}
	}()
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	fmt.Fprintln(c, name)
	<-self
	say(Try{Case: CaseReady})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
