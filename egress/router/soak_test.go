// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/wire"
)

// A thousand connections, 50 at once, half of them refused, leave nothing: no descriptor, and no goroutine, which TestMain looks after.
func TestManyConnections(t *testing.T) {
	const workers, each = 50, 20
	port := raw(t, echo)
	h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}, close: true})
	before := descriptors(t)
	good, err := h.guest.DialName("good.test", port)
	if err != nil {
		t.Fatal(err)
	}
	to := strings.TrimSuffix(good.RemoteAddr().String(), fmt.Sprint(":", port))
	good.Close()
	var wg sync.WaitGroup
	var answered, refused atomic.Int64
	for range workers {
		wg.Go(func() {
			for i := range each {
				host := to
				if i%2 == 1 {
					host = "93.184.216.34"
				}
				c, err := h.guest.Dial(fmt.Sprintf("%s:%d", host, port))
				if err != nil {
					refused.Add(1)
					continue
				}
				fmt.Fprintln(c, "hello")
				b := make([]byte, 6)
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := io.ReadFull(c, b); err == nil && string(b) == "hello\n" {
					answered.Add(1)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	if answered.Load() != workers*each/2 || refused.Load() != workers*each/2 {
		t.Errorf("%d were answered and %d refused of %d", answered.Load(), refused.Load(), workers*each)
	}
	h.close()
	done := h.seen("the totals", func(e wire.Event) bool { return e.Kind == wire.Done })
	if done.Totals.Connections != workers*each/2+1 || done.Totals.Refused < workers*each/2 { // a beginning may be sent twice
		t.Errorf("%+v", done.Totals)
	}
	h.r.mu.Lock()
	if n := len(h.r.open); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	h.r.mu.Unlock()
	// The server that the test has hears of the end a moment later.
	after := descriptors(t)
	for end := time.Now().Add(20 * time.Second); after > before && time.Now().Before(end); after = descriptors(t) {
		time.Sleep(time.Millisecond)
	}
	if after > before {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
