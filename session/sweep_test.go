// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What was still held when the sandboxes were opened, by somebody who ends without
// taking it away, is taken away later.
func testSweepsAgain(t *testing.T, h *home) {
	dying, err := h.dir.Run("sbx_ofadeadowner0000000000")
	if err != nil {
		t.Fatal(err)
	}
	here := func() bool {
		_, err := os.Stat(filepath.Join(h.dir.Path(), "run", "sbx_ofadeadowner0000000000"))
		return err == nil
	}
	h.clock.move(sweepSoon)
	if !here() {
		t.Fatal("what is held was taken away")
	}
	dying.Release()
	h.clock.move(2*sweepSoon - time.Nanosecond)
	if !here() {
		t.Fatal("it was not waited twice as long")
	}
	// A process that another test is just starting has a copy of all locks until it
	// executes its program, so one look may not be enough.
	for range 100 {
		if h.clock.move(sweepEvery); !here() {
			return
		}
	}
	t.Error("it is still there when nobody holds it any more")
}
