// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// told is what came of a cell.
type told struct {
	out, err string
	count    int
	results  []interpreter.Result
	failure  *interpreter.Error
	end      interpreter.Ending
}

// runCell runs a cell to its end.
func runCell(t testing.TB, c *guest.Client, cell interpreter.Cell) told {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	x, err := c.Execute(ctx, cell)
	if err != nil {
		t.Fatalf("%.200q: %v", cell.Code, err)
	}
	defer x.Close()
	return followCell(t, x)
}

// followCell reads a cell's events to their end.
func followCell(t testing.TB, x *guest.Execution) (all told) {
	t.Helper()
	for {
		e, err := x.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("after %+v: %v", all, err)
		}
		switch e.Type {
		case interpreter.Started:
			all.count = e.Count
		case interpreter.Stdout:
			all.out += e.Text
		case interpreter.Stderr:
			all.err += e.Text
		case interpreter.Display:
			all.results = append(all.results, *e.Result)
		case interpreter.Failure:
			all.failure = e.Error
		case interpreter.End:
			all.end = *e.End
		}
	}
}

func (r told) main() string {
	for _, result := range r.results {
		if result.Main {
			return string(result.Data["text/plain"])
		}
	}
	return ""
}

// A context keeps what its cells have left, and each of them tells what came of it.
func TestCells(t *testing.T) {
	c := newClient(t)
	if got := runCell(t, c, interpreter.Cell{Code: "x = 41"}); got.end.Status != interpreter.Done || got.count != 1 {
		t.Fatalf("%+v", got)
	}
	got := runCell(t, c, interpreter.Cell{Code: "import sys\nprint('a'); print('b', file=sys.stderr)\nx + 1"})
	if got.out != "a\n" || got.err != "b\n" || got.main() != `"42"` || got.count != 2 || got.end.Status != interpreter.Done {
		t.Errorf("%+v", got)
	}
	got = runCell(t, c, interpreter.Cell{Code: "1/0"})
	if got.failure == nil || got.failure.Name != "ZeroDivisionError" || got.end.Status != interpreter.Failed || !strings.Contains(got.failure.Traceback, "1/0") {
		t.Errorf("%+v", got)
	}
	if all, err := c.Contexts(t.Context()); err != nil || len(all) != 1 || all[0].Executions != 3 || all[0].Language != interpreter.Python {
		t.Errorf("%+v %v", all, err)
	}
}

func TestContextsRefuse(t *testing.T) {
	c := newClient(t)
	ctx := t.Context()
	made, err := c.CreateContext(ctx, interpreter.ContextOptions{ID: "mine", Dir: "/tmp", Env: map[string]string{"A": "b"}})
	if err != nil || made.ID != "mine" || made.Dir != "/tmp" || made.Language != interpreter.Python {
		t.Fatalf("%+v %v", made, err)
	}
	if got := runCell(t, c, interpreter.Cell{Context: "mine", Code: "import os; print(os.getcwd(), os.environ['A'])"}); got.out != "/tmp b\n" {
		t.Errorf("%+v", got)
	}
	for name, tt := range map[string]struct {
		do   func() error
		kind error
		says string
	}{
		"the same ID": {func() error { _, err := c.CreateContext(ctx, interpreter.ContextOptions{ID: "mine"}); return err }, sandbox.ErrInvalid, "already"},
		"no kernel": {func() error {
			_, err := c.CreateContext(ctx, interpreter.ContextOptions{Language: "cobol"})
			return err
		}, sandbox.ErrInvalid, "Jupyter"},
		"no such context": {func() error { _, err := c.Execute(ctx, interpreter.Cell{Context: "x"}); return err }, sandbox.ErrNotFound, ""},
		"another language": {func() error {
			_, err := c.Execute(ctx, interpreter.Cell{Context: "mine", Language: "bash"})
			return err
		}, sandbox.ErrInvalid, "python"},
		"another user's": {func() error {
			_, err := c.AsUser(sandbox.User{UID: 65534, GID: 65534}).Execute(ctx, interpreter.Cell{Context: "mine"})
			return err
		}, sandbox.ErrNotFound, ""},
		"restart nothing":   {func() error { return c.RestartContext(ctx, "x") }, sandbox.ErrNotFound, ""},
		"interrupt nothing": {func() error { return c.InterruptContext(ctx, "../x") }, sandbox.ErrNotFound, ""},
		"no directory": {func() error {
			_, err := c.CreateContext(ctx, interpreter.ContextOptions{Dir: "/no/where"})
			return err
		}, sandbox.ErrInvalid, "/no/where"},
	} {
		err := tt.do()
		var e *sandbox.Error
		if !errors.Is(err, tt.kind) || !errors.As(err, &e) || !strings.Contains(e.Problem+e.Hint, tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.RemoveContext(ctx, "mine"); err != nil {
		t.Error(err)
	}
	if err := c.RemoveContext(ctx, "mine"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	gone(t, c, "python3")
}

// A client that goes away interrupts its cell, and the next one answers.
func TestCellWithoutClient(t *testing.T) {
	b := newBox(t)
	c := b.dial(t, user())
	runCell(t, c, interpreter.Cell{Code: "kept = 1"})
	for name, leave := range map[string]func(x *guest.Execution){
		"closed":       func(x *guest.Execution) { x.Close() },
		"session lost": func(*guest.Execution) { c.Close(); c = b.dial(t, user()) },
	} {
		x, err := c.Execute(t.Context(), interpreter.Cell{Code: "print('on')\nwhile True: pass"})
		if err != nil {
			t.Fatal(err)
		}
		for {
			e, err := x.Next()
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == interpreter.Stdout {
				break
			}
		}
		leave(x)
		if got := runCell(t, c, interpreter.Cell{Code: "kept"}); got.main() != `"1"` || got.out != "" {
			t.Errorf("%s: %+v", name, got)
		}
		x.Close()
	}
}

// A client that reads nothing does not keep its context from others for ever.
func TestCellOfDeafClient(t *testing.T) {
	c := newClient(t)
	runCell(t, c, interpreter.Cell{Code: "kept = 1"})
	x, err := c.Execute(t.Context(), interpreter.Cell{Code: "while True: print('x' * 10000)", Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if got := runCell(t, c, interpreter.Cell{Code: "kept"}); got.main() != `"1"` {
		t.Errorf("%+v", got)
	}
}

// What a kernel has started ends with its context.
func TestContextTakesItsChildren(t *testing.T) {
	c := newClient(t)
	runCell(t, c, interpreter.Cell{Language: "bash", Code: "sleep 4711 & (setsid sleep 4712 &)"})
	runCell(t, c, interpreter.Cell{Language: "python", Code: "import subprocess; p = subprocess.Popen(['sleep', '4713'])"})
	all, err := c.Contexts(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v %v", all, err)
	}
	for _, x := range all {
		if err := c.RemoveContext(t.Context(), x.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := output(t, c, "pgrep -f 'sleep 471[13]' || true"); got != "" {
		t.Errorf("left: %s", got)
	}
}

// A kernel has what every program of its user has, and nothing of the agent's.
func TestKernelOwnsNothingElse(t *testing.T) {
	o := user()
	o.Limits = sandbox.Limits{OpenFiles: 99}
	c := newBox(t).dial(t, o)
	got := runCell(t, c, interpreter.Cell{Language: "bash", Code: "id -u; ulimit -n; grep NoNewPrivs /proc/self/status | cut -f2; grep Cap[IPEA] /proc/self/status | grep -cv 0000000000000000; ls -l /proc/self/fd | grep -c memfd; true"})
	if got.out != "1000\n99\n1\n0\n0\n" {
		t.Errorf("%q %q %+v", got.out, got.err, got.end)
	}
	got = runCell(t, c, interpreter.Cell{Code: "import os\nopen('/proc/1/environ')"})
	if got.failure == nil || got.failure.Name != "PermissionError" {
		t.Errorf("%+v", got)
	}
}

// A copy of a sandbox is told, and its kernels draw other numbers.
func TestResumedCellsDrawAnew(t *testing.T) {
	c := newClient(t)
	runCell(t, c, interpreter.Cell{Code: "import random; random.seed(1)"})
	if _, err := c.Resume(t.Context(), guest.Resume{}); err != nil {
		t.Fatal(err)
	}
	if got := runCell(t, c, interpreter.Cell{Code: "random.random()"}); got.main() == `"0.13436424411240122"` || got.main() == "" {
		t.Errorf("%+v", got)
	}
}
