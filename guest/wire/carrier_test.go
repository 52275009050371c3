// SPDX-License-Identifier: Apache-2.0

//go:build linux

package wire

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// streams are the two ends of a socket.
func streams(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "stream")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return ends[0], ends[1]
}

// carriers are two, with the ends of their streams that are not theirs.
func carriers(t *testing.T) (host, guest *Carrier, ours, theirs net.Conn) {
	t.Helper()
	ours, a := streams(t)
	theirs, b := streams(t)
	host, guest = NewCarrier(a), NewCarrier(b)
	t.Cleanup(func() { ours.Close(); theirs.Close(); host.Close(); guest.Close() })
	return host, guest, ours, theirs
}

// meet joins the two by a connection, until the returned function has them part as a machine
// and its monitor do, and the connection end.
func meet(t *testing.T, host, guest *Carrier) (part func()) {
	t.Helper()
	a, b := streams(t)
	joined := make(chan bool, 2)
	for c, conn := range map[*Carrier]net.Conn{host: a, guest: b} {
		c.Meet()
		go func() { joined <- c.Join(conn) }()
	}
	for _, c := range []*Carrier{host, guest} {
		if err := c.wait(t.Context(), func() bool { return c.conn != nil }); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		host.Part()
		guest.Part()
		for _, pair := range [][2]*Carrier{{guest, host}, {host, guest}} {
			n, err := pair[0].Sent(ctx)
			if err == nil {
				err = pair[1].Await(ctx, n)
			}
			if err != nil {
				t.Error(err)
			}
		}
		host.Cut()
		guest.Cut()
		for range 2 {
			if !<-joined {
				t.Error("a stream has ended with its connection")
			}
		}
	}
}

// Of a stream nothing is lost, and nothing comes twice, over connections that end while both
// sides send and one of them does not read.
func TestCarrier(t *testing.T) {
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	host, guest, ours, theirs := carriers(t)
	const size = 8 << 20
	sent := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(sent)
	for i, c := range []net.Conn{ours, theirs} {
		go func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for at := 0; at < size; {
				n := min(size-at, 1+random.IntN(100_000))
				if _, err := c.Write(sent[at : at+n]); err != nil {
					return
				}
				at += n
			}
		}()
	}
	got := make(chan []byte, 2)
	go func() { // one reads all the time
		b := make([]byte, size)
		_, _ = io.ReadFull(ours, b)
		got <- b
	}()
	b := make([]byte, size)
	for round := range 8 { // the other a little of each connection
		part := meet(t, host, guest)
		if _, err := io.ReadFull(theirs, b[round*100_000:(round+1)*100_000]); err != nil {
			t.Fatal(err)
		}
		part()
	}
	part := meet(t, host, guest)
	if _, err := io.ReadFull(theirs, b[800_000:]); err != nil {
		t.Fatal(err)
	}
	got <- b
	for range 2 {
		if !bytes.Equal(<-got, sent) {
			t.Error("what came is not what was sent")
		}
	}
	part()
}

// A side that says that it has sent another number of bytes is not believed, and one whose
// connection has ended is not waited for.
func TestCarrierDisagrees(t *testing.T) {
	host, guest, ours, theirs := carriers(t)
	part := meet(t, host, guest)
	if _, err := theirs.Write([]byte("five ")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(ours, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{4, -1} {
		if err := host.Await(t.Context(), n); err == nil {
			t.Errorf("it had sent %d bytes", n)
		}
	}
	part()
	if err := host.Await(t.Context(), 6); err == nil {
		t.Error("more came than was sent")
	}
}

// What is counted is of this connection alone, from Meet on. Whether it was parted with is told
// as it was when it ended.
func TestCarrierCounts(t *testing.T) {
	host, guest, _, theirs := carriers(t)
	part := meet(t, host, guest)
	if _, err := theirs.Write([]byte("five ")); err != nil {
		t.Fatal(err)
	}
	part()
	for name, c := range map[string]*Carrier{"host": host, "guest": guest} {
		c.Meet()
		if n, err := c.Sent(t.Context()); n != 0 || err != nil {
			t.Errorf("the %s has sent %d bytes over no connection, %v", name, n, err)
		}
		if err := c.Await(t.Context(), 0); err != nil {
			t.Errorf("to the %s: %v", name, err)
		}
	}
	for _, apart := range []bool{false, true} {
		conn, other := streams(t)
		if !host.Begin(conn) || host.Begin(other) {
			t.Fatal("there is not one connection")
		}
		if apart {
			host.Part()
		}
		conn.Close()
		if more, parted := host.Carry(conn); !more || parted != apart {
			t.Errorf("it goes on: %v; parted: %v, want %v", more, parted, apart)
		}
	}
}

// A connection that ends by itself leaves the stream for the next; the end of the stream is
// the end of its connection.
func TestCarrierEnds(t *testing.T) {
	c, _, ours, _ := carriers(t)
	for range 2 {
		a, b := streams(t)
		joined := make(chan bool)
		go func() { joined <- c.Join(a) }()
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(ours, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if !<-joined {
			t.Error("the stream has ended with its connection")
		}
	}
	a, b := streams(t)
	joined := make(chan bool)
	go func() { joined <- c.Join(a) }()
	ours.Close()
	if n, err := b.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		t.Errorf("the stream has ended, and its connection not: %d, %v", n, err)
	}
	if <-joined {
		t.Error("the stream goes on")
	}
	if c.Together() {
		t.Error("a stream that has ended is to be carried on")
	}
	b.Close()
}
