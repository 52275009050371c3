// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"testing"
	"time"
)

// What another key does takes no event away, however much it is. It wakes no
// waiting caller and shows in no number.
func TestEventsAreEachKeysOwn(t *testing.T) {
	b := &Sandboxes{events: events{clock: newHandClock()}}
	one, other := &Key{ID: "k1"}, &Key{ID: "k2"}
	b.events.tell(&Sandbox{ID: "i1", Owner: one.ID}, "created")
	_, more := b.Events(one, 1)
	for range 2 * maxEvents {
		b.events.tell(&Sandbox{ID: "i2", Owner: other.ID}, "paused")
	}
	select {
	case <-more:
		t.Error("another key's events wake who waits")
	default:
	}
	b.events.tell(&Sandbox{ID: "i1", Owner: one.ID}, "ended")
	select {
	case <-more:
	case <-time.After(time.Minute):
		t.Error("the key's own does not")
	}
	all, _ := b.Events(one, 0)
	if len(all) != 2 || all[0].Kind != "created" || all[1].Seq != 2 {
		t.Errorf("%+v", all)
	}
	if all, _ := b.Events(other, 0); len(all) != maxEvents || all[0].Seq != maxEvents+1 {
		t.Errorf("%d of the other's", len(all))
	}
}
