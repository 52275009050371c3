// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kernels "github.com/caisson-run/caisson/guest/agent/interpreter"
	"github.com/caisson-run/caisson/interpreter"
)

// install makes a Jupyter kernel of argv.
func (b *bench) install(name string, argv ...string) {
	b.Helper()
	dir := filepath.Join(b.user.home, ".local/share/jupyter/kernels", name)
	spec, err := json.Marshal(map[string]any{"argv": argv, "language": "tongue", "env": map[string]string{"SPEC": "yes"}})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kernel.json"), spec, 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func TestJupyterKernel(t *testing.T) {
	needModule(t, "ipykernel")
	b := system(t)
	b.install("mine", "/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}")
	b.expect(t, "mine", []one{
		{name: "next", code: "import os\nx = 41\nx + 1", main: "42"},
		{name: "next", code: "print('a'); x", out: "a\n", main: "41"},
		{name: "next", code: "os.environ['SPEC'], os.getcwd() == os.environ['HOME']", main: "('yes', True)"},
		{name: "next", code: "1/0", fails: "ZeroDivisionError\ndivision by zero\n"},
		{name: "next", code: "from IPython.display import HTML, display\ndisplay(HTML('<b>'))"},
		{name: "next", code: "os._exit(3)", lost: "exited with code 3"},
		{name: "next", code: "'x' in dir()", main: "False"},
	})
	if o := b.code("tongue", "2"); o.main() != "2" {
		t.Errorf("by its language: %+v", o.end)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	o := b.runUntil(ctx, interpreter.Cell{Language: "mine", Code: "y = 1\nprint('on')\nwhile True: pass"}, func(e *interpreter.Event) {
		if e.Type == interpreter.Stdout {
			cancel()
		}
	})
	if next := b.code("mine", "y"); o.end.Status != interpreter.Interrupted || next.main() != "1" {
		t.Errorf("ended %+v, next %q", o.end, next.main())
	}
	if o := b.run(interpreter.Cell{Language: "mine", Code: "1", Dir: "/tmp"}); o.end.Status != interpreter.Failed || !strings.Contains(o.failure.Value, "Jupyter") {
		t.Errorf("%+v", o.end)
	}
}

// R has variables and a directory of one cell.
func TestPlaceOfR(t *testing.T) {
	if _, err := os.Stat("/usr/lib/R/site-library/IRkernel"); err != nil {
		t.Skip("needs R's IRkernel")
	}
	b := system(t)
	code := `cat(Sys.getenv(c("A", "SANDBOX"), unset = "none"), basename(getwd()), exists(".caisson"))`
	home := filepath.Base(b.user.home)
	for _, tt := range []struct {
		cell interpreter.Cell
		out  string
	}{
		{interpreter.Cell{}, "none yes " + home + " FALSE"},
		{interpreter.Cell{Env: map[string]string{"A": "b\\'\"<e\n", "SANDBOX": "x"}, Dir: "/tmp"}, "b\\'\"<e\n x tmp TRUE"},
		{interpreter.Cell{}, "none yes " + home + " FALSE"},
		{interpreter.Cell{Dir: "/tmp"}, "none yes tmp TRUE"},
		{interpreter.Cell{Env: map[string]string{"A": "1"}}, "1 yes " + home + " TRUE"},
	} {
		tt.cell.Language, tt.cell.Code = "ir", code
		if o := b.run(tt.cell); o.out != tt.out || o.end.Status != interpreter.Done {
			t.Errorf("%+v: %q, want %q; %+v", tt.cell, o.out, tt.out, o.failure)
		}
	}
	if o := b.run(interpreter.Cell{Language: "ir", Code: "1", Dir: "/no/where"}); o.end.Status != interpreter.Failed {
		t.Errorf("no directory: %+v", o.end)
	}
	if o := b.run(interpreter.Cell{Language: "ir", Code: code}); o.out != "none yes "+home+" FALSE" {
		t.Errorf("at the end: %q", o.out)
	}
}

func TestJupyterKernelFails(t *testing.T) {
	b := system(t)
	b.install("ends", "/bin/sh", "-c", "echo broken >&2; exit 4")
	if _, err := b.all.Create(b.user, interpreter.ContextOptions{Language: "ends"}); !errors.Is(err, kernels.ErrFailed) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
	if _, err := b.all.Create(b.user, interpreter.ContextOptions{Language: "none"}); !errors.Is(err, kernels.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}
