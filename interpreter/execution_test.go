// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"runtime"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

// Output in small pieces costs no more than its length: a sandbox says how long they are.
func TestExecutionOfSmallPieces(t *testing.T) {
	var before, after runtime.MemStats
	x := &interpreter.Execution{}
	const pieces = 20_000
	runtime.ReadMemStats(&before)
	for range pieces {
		x.Add(interpreter.Event{Type: interpreter.Stdout, Text: "a"})
		x.Add(interpreter.Event{Type: interpreter.Stderr, Text: "b"})
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 20*pieces {
		t.Errorf("%d bytes were allocated for %d pieces", n, pieces)
	}
	if len(x.Stdout) != pieces || len(x.Stderr) != pieces {
		t.Errorf("%d and %d bytes", len(x.Stdout), len(x.Stderr))
	}
}
