// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// cellOf is a cell of Python.
func cellOf(code string) *session.Call {
	return &session.Call{Source: &session.Source{Code: []byte(code)}}
}

// run runs a cell, and puts its events together.
func (h *home) cell(t *testing.T, id, in string, call *session.Call) (*interpreter.Execution, *sandbox.Result, error) {
	t.Helper()
	x := &interpreter.Execution{}
	res, err := h.Handle(h.key, id).RunCell(t.Context(), call, in, func(e interpreter.Event) error { x.Add(e); return nil })
	return x, res, err
}

// mustCell is cell for those that end well; it returns their main result as text.
func (h *home) mustCell(t *testing.T, id, in, code string) string {
	t.Helper()
	x, res, err := h.cell(t, id, in, cellOf(code))
	if err != nil || res.Status != sandbox.StatusSuccess || x.Status != interpreter.Done {
		t.Fatalf("%s: %+v, %+v, %v", code, x, res, err)
	}
	for _, r := range x.Results {
		var text string
		if r.Main && json.Unmarshal(r.Data["text/plain"], &text) == nil {
			return text
		}
	}
	return ""
}

func TestCells(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{Env: map[string]string{"OF_THE_BOX": "a"}})
	for name, test := range map[string]func(*testing.T, *home, string){
		"state": testCellState, "contexts": testContexts, "record": testCellRecord, "interrupt": testCellInterrupted, "time": testCellTime, "others": testCellsOfOthers,
	} {
		t.Run(name, func(t *testing.T) { test(t, h, s.ID) })
	}
}

func testCellState(t *testing.T, h *home, id string) {
	h.mustCell(t, id, "", "import os\nx = 41")
	if got := h.mustCell(t, id, "", "x + 1"); got != "42" {
		t.Errorf("the next cell sees %s", got)
	}
	if got := h.mustCell(t, id, "", "os.environ['OF_THE_BOX'], os.environ['HOME'], os.getcwd()"); got != "('a', '/home/user', '/home/user')" {
		t.Errorf("a cell finds %s around it", got)
	}
	x, res, err := h.cell(t, id, "", cellOf("print('out'); 1/0"))
	if err != nil || res.Status != sandbox.StatusError || x.Status != interpreter.Failed || x.Error == nil || x.Error.Name != "ZeroDivisionError" || x.Stdout != "out\n" {
		t.Errorf("%+v, %+v, %v", x, res, err)
	}
	c := cellOf("open('made', 'w').write('four')")
	if x, _, err := h.cell(t, id, "", c); err != nil || len(x.Files) != 1 || x.Files[0].Path != "/home/user/made" || x.Files[0].Size != 4 {
		t.Errorf("files: %+v, %v", x, err)
	}
}

func testContexts(t *testing.T, h *home, id string) {
	b := h.Handle(h.key, id)
	one, err := b.CreateContext(t.Context(), &session.Call{}, interpreter.ContextOptions{ID: "one", Dir: "/tmp"})
	if err != nil || one.ID != "one" || one.Language != interpreter.Python || one.Dir != "/tmp" {
		t.Fatalf("%+v, %v", one, err)
	}
	h.mustCell(t, id, "one", "y = 5")
	if x, _, err := h.cell(t, id, "", cellOf("y")); err != nil || x.Error == nil || x.Error.Name != "NameError" {
		t.Errorf("another context: %+v, %v", x, err)
	}
	wrong := cellOf("1")
	wrong.Source.Language = "bash"
	if _, _, err := h.cell(t, id, "one", wrong); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("another language: %v", err)
	}
	if err := b.RestartContext(t.Context(), "", "one"); err != nil {
		t.Fatal(err)
	}
	if x, _, err := h.cell(t, id, "one", cellOf("y")); err != nil || x.Error == nil {
		t.Errorf("after a restart: %+v, %v", x, err)
	}
	made := cellOf("z = 1")
	made.Source.MakeContext = true
	if _, _, err := h.cell(t, id, "made", made); err != nil {
		t.Error(err)
	}
	all, err := b.Contexts(t.Context(), "")
	if err != nil || len(all) < 2 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, c := range []string{"one", "made"} {
		if err := b.RemoveContext(t.Context(), "", c); err != nil {
			t.Error(err)
		}
		if _, _, err := h.cell(t, id, c, cellOf("1")); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("a context that was removed: %v", err)
		}
	}
	for name, o := range map[string]interpreter.ContextOptions{
		"language": {Language: "../x"}, "id": {ID: ".x"}, "dir": {Dir: "/a/../b"}, "kernel": {Language: "nosuchkernel"},
	} {
		if c, err := b.CreateContext(t.Context(), &session.Call{}, o); !errors.Is(err, sandbox.ErrInvalid) && !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// Each cell is in the record: what it was, where, and what it told. A context that starts what
// its maker chose is, too.
func testCellRecord(t *testing.T, h *home, id string) {
	h.mustCell(t, id, "", "print('recorded'); 6*7")
	if _, err := h.Handle(h.key, id).CreateContext(t.Context(), &session.Call{}, interpreter.ContextOptions{Language: "nosuchkernel"}); err == nil {
		t.Error("a kernel was found that is none")
	}
	var found, kernels int
	for e, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Call.Kind != string(policy.RunCode) || e.Call.Sandbox != id || e.Call.Labels["context"] == "" {
			continue
		}
		switch {
		case e.Call.Labels["context"] == "nosuchkernel":
			kernels++
		case e.Ending != nil && e.Ending.Stdout != nil && e.Ending.Stdout.SHA256 == sumOf("recorded\n42\n") && e.Call.Code.SHA256 == sumOf("print('recorded'); 6*7"):
			found++
		}
	}
	if found != 1 || kernels == 0 {
		t.Errorf("%d records of the cell, %d of the kernel", found, kernels)
	}
}

// A caller that goes away interrupts its cell, and the state is kept.
func testCellInterrupted(t *testing.T, h *home, id string) {
	h.mustCell(t, id, "", "kept = 1\nimport time")
	ctx, cancel := context.WithCancel(t.Context())
	res, err := h.Handle(h.key, id).RunCell(ctx, cellOf("print('began', flush=True)\ntime.sleep(1000)"), "", func(e interpreter.Event) error {
		if e.Type == interpreter.Stdout {
			cancel()
		}
		return nil
	})
	if err != nil || res.Status != sandbox.StatusError || !strings.Contains(res.Reason, "interrupted") {
		t.Errorf("%+v, %v", res, err)
	}
	if got := h.mustCell(t, id, "", "kept"); got != "1" {
		t.Errorf("afterwards it is %s", got)
	}
	// By name.
	x, res, err := &interpreter.Execution{}, (*sandbox.Result)(nil), error(nil)
	b := h.Handle(h.key, id)
	res, err = b.RunCell(t.Context(), cellOf("print('began', flush=True)\ntime.sleep(1000)"), "", func(e interpreter.Event) error {
		x.Add(e)
		if e.Type == interpreter.Stdout {
			return b.InterruptContext(t.Context(), "", interpreter.Python)
		}
		return nil
	})
	if err != nil || res.Status != sandbox.StatusError || x.Status != interpreter.Interrupted {
		t.Errorf("%+v, %+v, %v", x, res, err)
	}
}

func testCellTime(t *testing.T, h *home, id string) {
	h.mustCell(t, id, "", "import time\nafter = 2")
	c := cellOf("time.sleep(1000)")
	c.Limits = sandbox.Limits{Wall: 300 * time.Millisecond, Explicit: map[sandbox.LimitName]bool{sandbox.LimitWall: true}}
	x, res, err := h.cell(t, id, "", c)
	if err != nil || x.Status != interpreter.TimedOut || res.Status != sandbox.StatusTimeout || res.Resource != sandbox.LimitWall {
		t.Errorf("%+v, %+v, %v", x, res, err)
	}
	if got := h.mustCell(t, id, "", "after"); got != "2" {
		t.Errorf("afterwards it is %s", got)
	}
}

// Another key's contexts are as ones that are not there.
func testCellsOfOthers(t *testing.T, h *home, id string) {
	other := *h
	other.key = h.newKey(t, "other of cells")
	b := h.Handle(other.key, id)
	_, _, ran := other.cell(t, id, "", cellOf("1"))
	_, made := b.CreateContext(t.Context(), &session.Call{}, interpreter.ContextOptions{})
	_, listed := b.Contexts(t.Context(), "")
	for name, err := range map[string]error{"run": ran, "create": made, "list": listed, "restart": b.RestartContext(t.Context(), "", "python"),
		"interrupt": b.InterruptContext(t.Context(), "", "python"), "remove": b.RemoveContext(t.Context(), "", "python")} {
		if !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "there is none") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a policy says of code, of limits and of tools holds for cells.
func TestCellsUnderAPolicy(t *testing.T) {
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncode: {python: {deny_imports: [socket]}}\nlimits: {output: 1KiB}\nenv: {pass: [FOO]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t, func(o *SandboxesOptions) { o.Policies = map[string]*policy.File{"": f} })
	id := h.create(t, Create{}).ID
	_, _, err = h.cell(t, id, "", cellOf("import socket"))
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.ErrDenied || !strings.Contains(e.Error(), `"cell.py" line 1:1 imports socket`) || !strings.HasPrefix(e.Rule, "/w/p.yaml:2") {
		t.Errorf("%v", err)
	}
	if all, err := h.Handle(h.key, id).Contexts(t.Context(), ""); err != nil || len(all) != 0 {
		t.Errorf("what was refused has made %+v, %v", all, err)
	}
	bash := cellOf("cd / && python3 -c 'import socket'")
	bash.Source.Language = "bash"
	if _, _, err := h.cell(t, id, "", bash); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("bash: %v", err)
	}
	// Which language an installed kernel speaks is not known here: not by its name.
	for _, kernel := range []string{"foo", "ir", "perl"} {
		foreign := cellOf("import socket")
		foreign.Source.Language = kernel
		_, _, err := h.cell(t, id, "", foreign)
		if !errors.As(err, &e) || e.Kind != sandbox.ErrDenied || !strings.Contains(e.Error(), kernel) || !strings.HasPrefix(e.Rule, "/w/p.yaml:2") {
			t.Errorf("a cell of the kernel %s: %v", kernel, err)
		}
		if _, err := h.Handle(h.key, id).CreateContext(t.Context(), &session.Call{}, interpreter.ContextOptions{Language: kernel}); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("a context of the kernel %s: %v", kernel, err)
		}
	}
	x, res, err := h.cell(t, id, "", cellOf("print('x' * 5000)"))
	if err != nil || len(x.Stdout) > 1024 || x.Cut < 3900 || len(res.LimitsHit) != 1 {
		t.Errorf("%d bytes, %+v, %+v, %v", len(x.Stdout), x.Ending, res, err)
	}
	env := cellOf("import os; os.environ['FOO']")
	env.Env = map[string]string{"FOO": "bar"}
	if x, _, err := h.cell(t, id, "", env); err != nil || len(x.Results) != 1 {
		t.Errorf("%+v, %v", x, err)
	}
	env.Env = map[string]string{"PYTHONSTARTUP": "x"}
	if _, _, err := h.cell(t, id, "", env); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("a variable that the policy does not pass: %v", err)
	}
	if _, err := h.Handle(h.key, id).CreateContext(t.Context(), &session.Call{}, interpreter.ContextOptions{Env: map[string]string{"PYTHONSTARTUP": "x"}}); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("the same of a context: %v", err)
	}
}

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
