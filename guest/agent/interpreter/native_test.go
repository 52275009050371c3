// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	kernels "github.com/caisson-run/caisson/guest/agent/interpreter"
	"github.com/caisson-run/caisson/interpreter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is how long anything may take that a test waits for, on a machine that has
// other work.
const limit = 2 * time.Minute

// native is a user whose kernels are processes of the test's own.
type native struct {
	home, path string
	modules    string // of Python
	started    []*process
	mu         sync.Mutex
}

func (n *native) ID() uint32              { return 1000 }
func (n *native) Home() string            { return n.home }
func (n *native) As(f func() error) error { return f() }
func (n *native) Environ(own map[string]string) []string {
	env := []string{"PATH=" + n.path, "HOME=" + n.home, "TMPDIR=" + n.home, "SANDBOX=yes", "PYTHONPATH=" + n.modules}
	for k, v := range own {
		env = append(env, k+"="+v)
	}
	return env
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (n *native) Start(p kernels.Program) (kernels.Process, error) {
	var program string
	for _, dir := range filepath.SplitList(n.path) {
		if f := filepath.Join(dir, p.Argv[0]); !strings.Contains(p.Argv[0], "/") && program == "" {
			if _, err := os.Stat(f); err == nil {
				program = f
			}
		}
	}
	if program == "" {
		program = p.Argv[0]
	}
	cmd := &exec.Cmd{
		Path: program, Args: p.Argv, Env: p.Env, Dir: p.Dir, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr,
		ExtraFiles: p.Files, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	k := &process{cmd, make(chan struct{})}
	n.mu.Lock()
	n.started = append(n.started, k)
	n.mu.Unlock()
	go func() { cmd.Wait(); close(k.done) }()
	return k, nil
}

func (p *process) Interrupt() error           { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) }
func (p *process) Kill() error                { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
func (p *process) Done() <-chan struct{}      { return p.done }
func (p *process) Status() syscall.WaitStatus { return p.cmd.ProcessState.Sys().(syscall.WaitStatus) }
func (p *process) OutOfMemory() bool          { return false }

// bench is a set of contexts for a test.
type bench struct {
	testing.TB
	user *native
	all  *kernels.Contexts
}

// newBench has the programs of path, and ends all contexts with the test.
func newBench(t testing.TB, path string) *bench {
	t.Helper()
	b := &bench{t, &native{home: t.TempDir(), path: path}, &kernels.Contexts{}}
	t.Cleanup(func() {
		b.all.Close()
		for _, k := range b.user.started {
			<-k.done
		}
	})
	return b
}

// system has what the machine has: Debian's Python, with IPython where it is installed.
func system(t testing.TB) *bench { return newBench(t, "/usr/bin:/bin") }

// bare has a Python without IPython.
func bare(t testing.TB) *bench {
	t.Helper()
	b := system(t)
	b.user.modules = t.TempDir()
	if err := os.WriteFile(filepath.Join(b.user.modules, "IPython.py"), []byte("raise ImportError('not here')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return b
}

// timeouts has interrupts wait for what this machine does next to other work, or hardly at
// all, where none is honoured.
func (b *bench) timeouts(none bool) {
	if none {
		b.all.SetTimeouts(10*time.Millisecond, 10*time.Millisecond)
		return
	}
	b.all.SetTimeouts(2*time.Second, limit)
}

// told is what came of a cell.
type told struct {
	events   []interpreter.Event
	out, err string
	results  []*interpreter.Result
	failure  *interpreter.Error
	end      interpreter.Ending
}

// main is the text of the last expression's value.
func (o *told) main() string {
	for _, r := range o.results {
		if r.Main {
			return text(r, "text/plain")
		}
	}
	return ""
}

// text is a form of a result that is a string.
func text(r *interpreter.Result, mime string) (s string) {
	if json.Unmarshal(r.Data[mime], &s) != nil {
		return string(r.Data[mime])
	}
	return s
}

// files are the names of files that it made.
func (o *told) files() (names []string) {
	for _, f := range o.end.Files {
		names = append(names, filepath.Base(f.Path))
	}
	slices.Sort(names)
	return names
}

// run runs a cell to its end.
func (b *bench) run(cell interpreter.Cell) *told {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	o := b.runUntil(ctx, cell, nil)
	if ctx.Err() != nil {
		b.Fatalf("%.100q did not end: %+v", cell.Code, o)
	}
	return o
}

// runUntil runs a cell that ends with ctx. seen is told each event.
func (b *bench) runUntil(ctx context.Context, cell interpreter.Cell, seen func(*interpreter.Event)) *told {
	b.Helper()
	x, err := b.all.Prepare(b.user, cell)
	if err != nil {
		b.Fatalf("%.100q: %v", cell.Code, err)
	}
	o := &told{}
	x.Run(ctx, kernels.Sink{Abort: func() {}, Event: func(e *interpreter.Event) error {
		o.events = append(o.events, *e)
		switch e.Type {
		case interpreter.Stdout:
			o.out += e.Text
		case interpreter.Stderr:
			o.err += e.Text
		case interpreter.Display:
			o.results = append(o.results, e.Result)
		case interpreter.Failure:
			o.failure = e.Error
		case interpreter.End:
			o.end = *e.End
		}
		if seen != nil {
			seen(e)
		}
		return nil
	}})
	return o
}

// code runs code in the default context of a language.
func (b *bench) code(language, code string) *told {
	b.Helper()
	return b.run(interpreter.Cell{Language: language, Code: code})
}

// need skips a test that needs a program which the machine does not have.
func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); errors.Is(err, exec.ErrNotFound) {
		t.Skipf("needs %s", program)
	}
}
