// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"testing"
	"time"
)

// TestBeat: it comes, at another pace when it is told so while it waits for a time
// that never comes, and stop ends a wait that goes on.
func TestBeat(t *testing.T) {
	b, err := newBeat()
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	b.every(time.Hour)
	b.every(time.Millisecond)
	for range 3 {
		if !b.wait() {
			t.Fatal("it stopped by itself")
		}
	}
	b.every(time.Hour)
	ended := make(chan bool)
	go func() { ended <- b.wait() }()
	b.stop()
	if <-ended || b.wait() {
		t.Error("it came after its end")
	}
}
