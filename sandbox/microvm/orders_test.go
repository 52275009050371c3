// SPDX-License-Identifier: Apache-2.0

package microvm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// guestSays is the far end of orders: what answers one, by the order's number. Empty lines
// are none.
func guestSays(t *testing.T, say func(o boot.Order) string) net.Conn {
	ours, theirs := socketPair(t) // which takes an answer that is not read, as a port does
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		for lines := bufio.NewScanner(theirs); lines.Scan(); {
			var o boot.Order
			if len(lines.Bytes()) == 0 {
				continue
			}
			if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
				t.Errorf("%q: %v", lines.Bytes(), err)
			}
			if _, err := theirs.Write([]byte(say(o))); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { ours.Close(); <-done })
	return ours
}

// A guest may be in the hands of code inside: it may say anything, and nothing.
func TestOrders(t *testing.T) {
	for name, tt := range map[string]struct {
		say   func(id uint64) string
		fails string
	}{
		"as it should": {func(id uint64) string { return fmt.Sprintf("{\"id\":%d}\n", id) }, ""},
		"an older answer": {func(id uint64) string {
			return fmt.Sprintf("{\"id\":%d,\"error\":\"late\"}\n{\"id\":%d}\n", id-1, id)
		}, ""},
		"an error":      {func(id uint64) string { return fmt.Sprintf("{\"id\":%d,\"error\":\"no\\u001b[2J\"}\n", id) }, `the guest says: "no\x1b[2J"`},
		"nonsense":      {func(uint64) string { return "]\n" }, "nonsense"},
		"too long":      {func(uint64) string { return strings.Repeat("x", 1<<20) }, "too long"},
		"other answers": {func(uint64) string { return strings.Repeat("{}\n", 1000) }, "what was not asked"},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			conn := guestSays(t, func(o boot.Order) string { return tt.say(o.ID) })
			err := microvm.NewOrders(conn).Give(t.Context(), boot.Order{Do: boot.Freeze})
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%v, want %q", err, tt.fails)
			}
			conn.Close()
		})
	}
}

// An order that was given up does no harm to the next.
func TestOrderGivenUp(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	asked := make(chan struct{}, 1)
	var first boot.Order
	conn := guestSays(t, func(o boot.Order) string {
		if o.Do == boot.Freeze {
			first = o
			asked <- struct{}{}
			return `{"id":` // and no more
		}
		return fmt.Sprintf("%d}\n{\"id\":%d}\n", first.ID, o.ID)
	})
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("its caller has left")
	go func() { <-asked; cancel(gone) }()
	o := microvm.NewOrders(conn)
	if err := o.Give(ctx, boot.Order{Do: boot.Freeze}); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if err := o.Give(t.Context(), boot.Order{Do: boot.Resume}); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// A machine is told what time it is when its agent begins: it boots for seconds after it was
// told what it is to be.
func TestClockWhenItBegins(t *testing.T) {
	ours, theirs := socketPair(t)
	booted := make(chan int64, 1)
	go func() {
		defer theirs.Close()
		if lines := bufio.NewScanner(theirs); lines.Scan() {
			booted <- time.Now().UnixNano()
			_, _ = theirs.Write([]byte("{}\n"))
		}
	}()
	told := make(chan boot.Order, 1)
	control := guestSays(t, func(o boot.Order) string {
		told <- o
		return fmt.Sprintf("{\"id\":%d}\n", o.ID)
	})
	if err := microvm.Begin(t.Context(), ours, control); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	select {
	case o := <-told:
		if at := <-booted; o.Do != boot.Resume || o.Time < at {
			t.Errorf("it had booted at %d, and was told %+v", at, o)
		}
	default:
		t.Error("it was not told what time it is")
	}
}
