// SPDX-License-Identifier: Apache-2.0

package router

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/wire"
)

// How many connections TestManyConnections makes, and how many at once.
// make test-soak makes a hundred thousand, 500 at once.
var (
	soakConnections = flag.Int("connections", 1000, "connections that the soak makes")
	soakAtOnce      = flag.Int("at-once", 50, "connections that the soak makes at once")
)

// Many connections, half of them refused, leave nothing: no descriptor, no
// goroutine, which TestMain looks after, and no memory.
func TestManyConnections(t *testing.T) {
	workers, each := *soakAtOnce, *soakConnections / *soakAtOnce
	port, stop := rawUntil(t, echo)
	h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}, close: true})
	good, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	to := strings.TrimSuffix(good.RemoteAddr().String(), fmt.Sprint(":", port))
	good.Close()
	before, began := descriptors(t), resident(t)
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
	if n := len(h.r.open); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	h.r.mu.Unlock()
	stop()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors became %d", before, after)
	}
	ended := resident(t)
	t.Logf("%d connections, %d at once: %d MiB became %d MiB", workers*each, workers, began>>20, ended>>20)
	if ended > began+soakRoom {
		t.Errorf("%d MiB became %d MiB", began>>20, ended>>20)
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

// resident is this process's resident memory, in bytes, with what is free given
// back.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
