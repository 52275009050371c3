// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// Cells and contexts, against a daemon.
func TestCells(t *testing.T) {
	c, _ := dial(t, "")
	ctx := t.Context()
	b := make1(t, c, client.Create{})
	made, err := c.CreateContext(ctx, b.ID, client.Context{ID: "mine", Cwd: "/tmp"})
	if err != nil || made.ID != "mine" || made.Dir != "/tmp" || made.Language != interpreter.Python {
		t.Fatalf("%+v, %v", made, err)
	}
	var seen []interpreter.EventType
	x, err := c.RunCell(ctx, b.ID, client.Cell{Context: "mine", Code: "print('hi')\nx = 41\nx + 1"}, func(e interpreter.Event) error {
		seen = append(seen, e.Type)
		return nil
	})
	if err != nil || x.Status != interpreter.Done || x.Stdout != "hi\n" || len(x.Results) != 1 || string(x.Results[0].Data["text/plain"]) != `"42"` || x.Count != 1 || len(seen) != 4 {
		t.Errorf("%+v, %v, %v", x, err, seen)
	}
	if x, err := c.RunCell(ctx, b.ID, client.Cell{Context: "mine", Code: "1/0"}, nil); err != nil || x.Status != interpreter.Failed || x.Error.Name != "ZeroDivisionError" {
		t.Errorf("%+v, %v", x, err)
	}
	stop := errors.New("stop")
	if _, err := c.RunCell(ctx, b.ID, client.Cell{Context: "mine", Code: "import time\nprint(1, flush=True)\ntime.sleep(1000)"}, func(e interpreter.Event) error {
		if e.Type == interpreter.Stdout {
			return stop
		}
		return nil
	}); err != stop {
		t.Errorf("a listener that fails: %v", err)
	}
	leaving, leave := context.WithCancel(ctx)
	if _, err := c.RunCell(leaving, b.ID, client.Cell{Context: "mine", Code: "print(1, flush=True)\ntime.sleep(1000)"}, func(e interpreter.Event) error {
		if e.Type == interpreter.Stdout {
			leave()
		}
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("one who leaves: %v", err)
	}
	if x, err := c.RunCell(ctx, b.ID, client.Cell{Context: "mine", Code: "x"}, nil); err != nil || len(x.Results) != 1 || string(x.Results[0].Data["text/plain"]) != `"41"` {
		t.Errorf("afterwards: %+v, %v", x, err)
	}
	if all, err := c.Contexts(ctx, b.ID); err != nil || len(all) != 1 || all[0].Executions == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for name, f := range map[string]func(context.Context, string, string) error{"interrupt": c.InterruptContext, "restart": c.RestartContext, "remove": c.RemoveContext} {
		for _, id := range []string{"none", "../..", ".."} {
			if err := f(ctx, b.ID, id); !errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("%s %s: %v", name, id, err)
			}
		}
	}
	if err := errors.Join(c.InterruptContext(ctx, b.ID, "mine"), c.RestartContext(ctx, b.ID, "mine"), c.RemoveContext(ctx, b.ID, "mine")); err != nil {
		t.Error(err)
	}
	if _, err := c.RunCell(ctx, b.ID, client.Cell{Context: "mine", Code: "x"}, nil); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("one that was removed: %v", err)
	}
}

// The policy's refusal is an error with its rule.
func TestCellsUnderAPolicy(t *testing.T) {
	c, _ := dial(t, "version: 1\ncode: {python: {deny_imports: [socket]}}\n")
	b := make1(t, c, client.Create{})
	_, err := c.RunCell(t.Context(), b.ID, client.Cell{Code: "import socket"}, nil)
	var e *client.Error
	if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrDenied) || e.Status != 403 {
		t.Errorf("%v", err)
	}
}

// What a daemon, or something in its place, says of a cell.
func TestReadEvents(t *testing.T) {
	for text, want := range map[string]string{
		":\n\nevent: stdout\ndata: {\"text\":\"a\"}\n\n": "stdout", "event: end\ndata: {\"end\":{\"status\":\"ok\"}}\n\n": "end",
		"event: end\ndata: {}\n\n": "", "event: display\ndata: {}\n\n": "", "event: stdout\ndata: {\n\n": "", "": "", "event: problem\ndata: {\"detail\":\"no\",\"kind\":\"denied\"}\n\n": "",
	} {
		e, err := client.ReadEvent(bufio.NewReader(strings.NewReader(text)))
		if (err == nil) != (want != "") || err == nil && string(e.Type) != want {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	}
}
