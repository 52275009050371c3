// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/caisson-run/caisson/egress/guesttest"
	"github.com/caisson-run/caisson/egress/wire"
)

// How many connections TestManyConnections makes, and how many at once.
// make test-soak makes a hundred thousand, 500 at once.
var (
	soakConnections = flag.Int("connections", 1000, "connections that the soak makes")
	soakAtOnce      = flag.Int("at-once", 50, "connections that the soak makes at once")
)

// Many connections, half of them refused, leave nothing: no goroutine, no
// descriptor and no memory, compared with what few of them leave.
func TestManyConnections(t *testing.T) {
	workers, each := *soakAtOnce, *soakConnections / *soakAtOnce
	soak(t, workers, 2)
	first := kept(t)
	soak(t, workers, 2)
	before := kept(t)
	soak(t, workers, each)
	after := kept(t)
	t.Logf("%d connections, %d at once: %v; then %v", workers*each, workers, before, after)
	// The guest's stack does not end all of its own: what one round leaves.
	switch {
	case after.descriptors-before.descriptors > before.descriptors-first.descriptors, after.goroutines-before.goroutines > before.goroutines-first.goroutines,
		after.live > before.live+soakLive, after.resident > before.resident+soakRoom:
		t.Errorf("first %v; then %v; in the end %v", first, before, after)
	}
}

// soakLive is what router, guest and server together may have more in use in the
// end, in bytes: the guest remembers ports, and the test what was recorded.
const soakLive = 4 << 20

// soak makes connections through a router, each of so many workers so many, and
// closes it. Half of the workers go where nothing is allowed.
func soak(t *testing.T, workers, each int) {
	t.Helper()
	port, stop := rawUntil(t, echo)
	defer stop()
	h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}, close: true})
	good, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	to := strings.TrimSuffix(good.RemoteAddr().String(), fmt.Sprint(":", port))
	good.Close()
	var wg sync.WaitGroup
	var answered, refused atomic.Int64
	for i := range workers {
		host := to
		if i%2 == 1 {
			host = "93.184.216.34"
		}
		wg.Go(func() {
			for range each {
				c, err := h.guest.Dial(fmt.Sprintf("%s:%d", host, port))
				if err != nil {
					refused.Add(1)
					if host == to {
						t.Error(err)
						return
					}
					continue
				}
				fmt.Fprintln(c, "hello")
				b := make([]byte, 6)
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := io.ReadFull(c, b); err != nil {
					t.Error(err)
					return
				}
				_ = c.SetReadDeadline(time.Time{}) // its timer would stay
				answered.Add(1)
				c.Close()
			}
		})
	}
	wg.Wait()
	half := int64(workers * each / 2)
	if answered.Load() != half || refused.Load() != half {
		t.Errorf("%d were answered and %d refused of %d: %.2000s", answered.Load(), refused.Load(), workers*each, h.reasons())
	}
	h.close()
	done := h.seen("the totals", func(e wire.Event) bool { return e.Kind == wire.Done })
	if done.Totals.Connections != half+1 || done.Totals.Refused < half { // a beginning may be sent twice
		t.Errorf("%+v", done.Totals)
	}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if n := len(h.r.open) + len(h.r.places); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// One who closes connections and opens others at once waits for a place; one who
// keeps all that there are gets no more.
func TestPlaces(t *testing.T) {
	port := raw(t, echo)
	h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	first, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	open := []net.Conn{first}
	for len(open) < maxOpen {
		c, err := h.guest.Dial(first.RemoteAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	const others = 50
	h.r.wait.Store(int64(guesttest.Wait)) // to close so many takes as long as it takes
	made := make(chan net.Conn, others)
	for range others {
		go func() {
			c, err := h.guest.Dial(first.RemoteAddr().String())
			if err != nil {
				t.Error(err)
				c = nil // and not a connection that is nil
			}
			made <- c
		}()
	}
	for range others {
		open[0].Close()
		open = open[1:]
	}
	for range others {
		if c := <-made; c != nil {
			open = append(open, c)
		}
	}
	h.r.wait.Store(int64(100 * time.Millisecond))
	if c, err := h.guest.Dial(first.RemoteAddr().String()); err == nil {
		c.Close()
		t.Errorf("there are %d places and one more", len(open))
	}
	h.refused("too many connections at once")
	// They are open when the house ends, whose guest does not read any more then.
}

// A beginning is refused by a decision alone: what the stack takes for a stray
// part of another connection is not answered, and the guest tries again.
func TestNoAccidentalReset(t *testing.T) {
	h := build(t, options{allow: []string{"127.0.0.1:*"}})
	l := h.r.link
	reset := func(seq uint32, flags header.TCPFlags) []byte {
		p := make([]byte, headerLength+header.TCPMinimumSize)
		p[0], p[9] = 4<<4|headerLength/4, protocolTCP
		copy(p[12:], []byte{93, 184, 216, 34})
		header.TCP(p[headerLength:]).Encode(&header.TCPFields{SrcPort: 443, DstPort: 5000, SeqNum: seq, Flags: flags, DataOffset: header.TCPMinimumSize})
		return p
	}
	w := way{[4]byte{93, 184, 216, 34}, 443, 5000}
	for name, c := range map[string]struct {
		packet []byte
		meant  bool
		want   bool
	}{
		"nobody meant it":       {reset(0, header.TCPFlagRst|header.TCPFlagAck), false, true},
		"it is meant":           {reset(0, header.TCPFlagRst|header.TCPFlagAck), true, false},
		"of an open connection": {reset(7, header.TCPFlagRst|header.TCPFlagAck), false, false},
		"of an acknowledgement": {reset(0, header.TCPFlagRst), false, false},
		"none":                  {reset(0, header.TCPFlagAck), false, false},
		"too short":             {reset(0, header.TCPFlagRst|header.TCPFlagAck)[:30], false, false},
	} {
		if c.meant {
			l.resets.change(w, 1)
		}
		if got := l.resets.accident(c.packet); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if c.meant {
			l.resets.change(w, -1)
		}
	}
	if n := len(l.resets.meant); n != 0 {
		t.Errorf("%d are remembered", n)
	}
	// The whole way: a segment of no connection, and then one that is refused.
	stray := reset(9, header.TCPFlagFin)
	copy(stray[12:], guestAddr.AsSlice())
	copy(stray[16:], []byte{93, 184, 216, 34})
	binary.BigEndian.PutUint16(stray[2:], uint16(len(stray)))
	stray[8] = 64
	ip := header.IPv4(stray)
	ip.SetChecksum(^ip.CalculateChecksum())
	before := h.r.stack.Stats().TCP.ResetsSent.Value()
	if _, err := h.wire.Write(stray); err != nil {
		t.Fatal(err)
	}
	if _, err := h.guest.Dial("93.184.216.34:443"); err == nil {
		t.Error("it was not refused")
	}
	// The stack counts a reset when it is out, and so may the guest know of it before.
	sent := func() uint64 { return h.r.stack.Stats().TCP.ResetsSent.Value() - before }
	for late := time.After(guesttest.Wait); sent() < 2; {
		select {
		case <-late:
			t.Fatalf("the stack has reset %d", sent())
		case <-time.After(time.Millisecond):
		}
	}
	if n := l.suppressed.Load(); n != 1 {
		t.Errorf("%d were held back", n)
	}
}

// reasons are why something did not come about, each once.
func (h *house) reasons() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range h.events {
		if e.Record != nil && e.Record.Reason != "" {
			seen[e.Record.Reason] = true
		}
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(seen)))
}

// keeps is what a process has.
type keeps struct {
	goroutines, descriptors int
	live, resident          int64 // bytes
}

func (k keeps) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MiB in use, %.1f MiB resident", k.goroutines, k.descriptors, float64(k.live)/(1<<20), float64(k.resident)/(1<<20))
}

// kept is what this process has, with what is free given back. Pools are empty
// after two collections.
func kept(t *testing.T) keeps {
	t.Helper()
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return keeps{runtime.NumGoroutine(), descriptors(t), int64(m.HeapAlloc + m.StackInuse), pages * int64(os.Getpagesize())}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
