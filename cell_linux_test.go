// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"errors"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// Cells keep their state on every level that has sandboxes that go on.
func TestSandboxCells(t *testing.T) {
	for _, level := range []string{"gvisor", "process"} {
		t.Run(level, func(t *testing.T) {
			c := opened(t, caisson.Options{Policy: policyFile(t, "isolation: "+level+"\ncode: {python: {deny_imports: [socket], on_finding: deny}}\n")})
			box, err := c.Create(t.Context(), caisson.Create{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close()
			run := func(cell caisson.Cell) *caisson.CellResult {
				t.Helper()
				res, err := box.RunCell(t.Context(), cell)
				if err != nil {
					t.Fatalf("%s: %v", cell.Code, err)
				}
				return res
			}
			run(caisson.Cell{Code: "x = 41"})
			events := 0
			res := run(caisson.Cell{Code: "print('hi')\nopen('made', 'w').write('a')\nx + 1", On: func(e interpreter.Event) error {
				if e.Type != interpreter.Alive {
					events++
				}
				return nil
			}})
			if res.Status != interpreter.Done || res.Stdout != "hi\n" || len(res.Results) != 1 || string(res.Results[0].Data["text/plain"]) != `"42"` || len(res.Files) != 1 || events != 4 {
				t.Errorf("%+v, %d events", res, events)
			}
			if res := run(caisson.Cell{Code: "import time\ntime.sleep(1000)", Timeout: 300 * time.Millisecond}); res.Status != interpreter.TimedOut {
				t.Errorf("%+v", res)
			}
			if res := run(caisson.Cell{Code: "import os\nos._exit(3)"}); res.Status != interpreter.Lost || res.Reason == "" {
				t.Errorf("%+v", res)
			}
			if res := run(caisson.Cell{Code: "x"}); res.Status != interpreter.Failed || res.Error == nil || res.Error.Name != "NameError" {
				t.Errorf("%+v", res)
			}
			one, err := box.CreateContext(t.Context(), interpreter.ContextOptions{Dir: "/tmp"})
			if err != nil || one.Dir != "/tmp" {
				t.Fatalf("%+v, %v", one, err)
			}
			if err := errors.Join(box.InterruptContext(t.Context(), one.ID), box.RestartContext(t.Context(), one.ID)); err != nil {
				t.Error(err)
			}
			if all, err := box.Contexts(t.Context()); err != nil || len(all) != 2 {
				t.Errorf("%+v, %v", all, err)
			}
			if err := box.RemoveContext(t.Context(), one.ID); err != nil {
				t.Error(err)
			}
			if _, err := box.RunCell(t.Context(), caisson.Cell{Context: one.ID, Code: "1"}); !errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("a context that was removed: %v", err)
			}
			if _, err := box.RunCell(t.Context(), caisson.Cell{Code: "import socket"}); !errors.Is(err, sandbox.ErrDenied) {
				t.Errorf("what the policy refuses: %v", err)
			}
		})
	}
}
