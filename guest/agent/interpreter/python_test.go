// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/interpreter"
)

// pythons runs a test with the standard library alone and with IPython.
func pythons(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("plain", func(t *testing.T) { test(t, bare(t)) })
	t.Run("IPython", func(t *testing.T) {
		needModule(t, "IPython")
		test(t, system(t))
	})
}

// needModule skips a test that needs a module which Debian's Python does not have here.
func needModule(t testing.TB, name string) {
	t.Helper()
	if exec.Command("/usr/bin/python3", "-c", "import "+name).Run() != nil {
		t.Skipf("needs the Python module %s", name)
	}
}

// one is a cell with what must come of it; "" is nothing.
type one struct {
	name   string
	code   string
	out    string // exactly
	err    string // a part
	main   string
	fails  string // a part of the name, the value and the traceback
	lost   string // a part of the reason
	status string // "ok" where there is neither fails nor lost
}

func (b *bench) expect(t *testing.T, language string, cells []one) {
	for _, tt := range cells {
		t.Run(tt.name, func(t *testing.T) {
			o := b.code(language, tt.code)
			want := tt.status
			switch {
			case want != "":
			case tt.lost != "":
				want = interpreter.Lost
			case tt.fails != "":
				want = interpreter.Failed
			default:
				want = interpreter.Done
			}
			var failure string
			if o.failure != nil {
				failure = o.failure.Name + "\n" + o.failure.Value + "\n" + o.failure.Traceback
			}
			if want != "*" && o.end.Status != want || !strings.Contains(o.end.Reason, tt.lost) {
				t.Errorf("ended %+v, want %s %q", o.end, want, tt.lost)
			}
			if tt.out != "*" && o.out != tt.out {
				t.Errorf("stdout %.300q, want %.300q", o.out, tt.out)
			}
			if tt.err != "*" && !strings.Contains(o.err, tt.err) || tt.err == "" && o.err != "" {
				t.Errorf("stderr %.300q, want %.300q", o.err, tt.err)
			}
			if tt.main != "*" && o.main() != tt.main {
				t.Errorf("value %.300q, want %.300q", o.main(), tt.main)
			}
			if want != "*" && (!strings.Contains(failure, tt.fails) || tt.fails == "" && failure != "") {
				t.Errorf("failure %.900s, want %q", failure, tt.fails)
			}
			if tt.name != "next" && o.end.Status != interpreter.Lost {
				if again := b.code(language, map[string]string{interpreter.Bash: "echo 2"}[language]+map[string]string{interpreter.Python: "print(2)", interpreter.JavaScript: "console.log(2)"}[language]); again.out != "2\n" || again.end.Status != interpreter.Done {
					t.Errorf("the next cell: %q %q %+v", again.out, again.err, again.end)
				}
			}
		})
	}
}

func TestPython(t *testing.T) {
	pythons(t, func(t *testing.T, b *bench) {
		b.expect(t, interpreter.Python, []one{
			{name: "value", code: "1+1", main: "2"},
			{name: "no value", code: "x = 1"},
			{name: "None", code: "None"},
			{name: "semicolon", code: "1+1;"},
			{name: "state", code: "x = 41\nx + 1", main: "42"},
			{name: "state stays", code: "x", main: "41"},
			{name: "underscore", code: "_", main: "41"},
			{name: "order", code: "import os, subprocess\nn = os.write(1, b'0\\n')\nprint('a')\nprint('b', end=' ')\nos.system('echo c')\nprint('d')\np = subprocess.run(['echo', 'e'])\nprint('f')", out: "0\na\nb c\nd\ne\nf\n"},
			{name: "no newline", code: "print('a', end='')", out: "a"},
			{name: "bytes", code: "import sys\nn = sys.stdout.buffer.write('ä'.encode())", out: "ä"},
			{name: "await", code: "import asyncio\nawait asyncio.sleep(0)\n7", main: "7"},
			{name: "await last", code: "async def f(): return 8\nawait f()", main: "8"},
			{name: "indented", code: "    y = 3\n    y", main: "3"},
			{name: "shell", code: "!echo hi", out: "hi\n"},
			{name: "shell in a block", code: "for i in range(2):\n    !echo hi\n", out: "hi\nhi\n"},
			{name: "raises", code: "def f():\n    return 1/0\nf()", fails: "ZeroDivisionError\ndivision by zero\nTraceback (most recent call last):\n  File \"<cell "},
			{name: "at the line", code: "\n\nraise ValueError('x')", fails: "line 3, in <module>\n    raise ValueError('x')"},
			{name: "from before", code: "f()", fails: "    return 1/0"},
			{name: "syntax", code: "a = = 1", fails: "SyntaxError"},
			{name: "unclosed", code: "s = 'abc", fails: "SyntaxError"},
			{name: "unclosed triple", code: "s = '''abc", fails: "SyntaxError"},
			{name: "NUL", code: "a = 'x\x00y'", fails: "null bytes"},
			{name: "future", code: "from __future__ import annotations\ndef g(a: nothing): pass\ng.__annotations__", main: "{'a': 'nothing'}"},
			{name: "exit", code: "import sys\nsys.exit()"},
			{name: "exit with a code", code: "sys.exit(3)", fails: "SystemExit\n3"},
			{name: "input", code: "input('name? ')", fails: "EOFError\na cell has no input"},
			{name: "stdin", code: "import sys\nsys.stdin.read()", main: "''"},
			{name: "main", code: "import sys\n__name__, sys.modules['__main__'].x", main: "('__main__', 41)"},
			{name: "pickle", code: "import pickle\nclass P: pass\ntype(pickle.loads(pickle.dumps(P()))).__name__", main: "'P'"},
			{name: "dataclass", code: "from dataclasses import dataclass\n@dataclass\nclass D:\n    a: int\nD(3)", main: "D(a=3)"},
			{name: "argv", code: "len(sys.argv)", main: "1"},
			{name: "surrogate", code: "'\\ud800'", main: "'\\ud800'"},
			{name: "surrogate printed", code: "print('\\ud800')", out: "\ufffd\n"},
			{name: "multiprocessing", code: "import multiprocessing as m\ndef sq(x): return x*x\nwith m.get_context('fork').Pool(2) as p: print(p.map(sq, [1, 2, 3]))", out: "[1, 4, 9]\n"},
			{name: "thread", code: "import threading\nt = threading.Thread(target=lambda: print('t'))\nt.start(); t.join()", out: "t\n"},
			{name: "warning", code: "import warnings\nwarnings.warn('careful')", err: "careful"},
			{name: "logging", code: "import logging\nlogging.warning('careful')", err: "careful"},
			{name: "comment", code: "# nothing"},
			{name: "empty", code: ""},
			{name: "emoji", code: "'\U0001F600'", main: "'\U0001F600'"},
		})
	})
}

// With IPython there is what it brings.
func TestIPython(t *testing.T) {
	needModule(t, "IPython")
	b := system(t)
	b.expect(t, interpreter.Python, []one{
		{name: "it is there", code: "get_ipython() is not None", main: "True"},
		{name: "line magic", code: "%cd /tmp\n%pwd", out: "/tmp\n", main: "'/tmp'"},
		{name: "cell magic", code: "%%bash\necho hi", out: "hi\n"},
		{name: "assigned", code: "x = !echo a b\nx", main: "['a b']"},
		{name: "history", code: "len(In) > 1, len(Out) > 0", main: "(True, True)"},
		{name: "no such magic", code: "%nonsense", fails: "UsageError"},
		{name: "display", code: "from IPython.display import display, HTML\ndisplay(HTML('<b>'))"},
		{name: "exit", code: "exit()"},
		{name: "leading lines", code: "\n\n    y = 3\n    1/0", fails: "line 4, in <module>"},
	})
}

// What a cell may do and must not break.
func TestPythonBadInput(t *testing.T) {
	pythons(t, func(t *testing.T, b *bench) {
		b.expect(t, interpreter.Python, []one{
			{name: "repr raises", code: "class R:\n    def __repr__(self): raise RuntimeError('no')\nR()", main: "*", err: "*"},
			{name: "repr prints", code: "class P:\n    def __repr__(self):\n        print('in repr')\n        return 'P'\nP()", out: "in repr\n", main: "P"},
			{name: "html writes files", code: "class H:\n    def _repr_html_(self):\n        open('made.txt', 'w').write('x')\n        return '<b>'\nH()", main: "*"},
			{name: "exec quit", code: "exec('quit()')"},
			{name: "stdout closed", code: "import sys\nsys.stdout.close()"},
			{name: "stdout None", code: "import sys\nsys.stdout = None"},
			{name: "stdout broken", code: "import sys\nclass B:\n    def write(self, s): raise OSError('broken')\n    def flush(self): raise OSError('broken')\nsys.stdout = B()\nsys.stderr = B()\nprint('x')", fails: "OSError\nbroken"},
			{name: "fd 1 and 2 closed", code: "import os\nos.close(1); os.close(2)\nprint('still')", out: "still\n"},
			{name: "protocol closed", code: "import os\nos.closerange(5, 300)", err: "*", lost: "exited with code 1"},
			{name: "next", code: "5", main: "5"},
			{name: "settrace", code: "import sys\nsys.settrace(lambda *a: 1/0)\nx = 1", status: "*"},
			{name: "builtins", code: "import builtins\nfor n in ('len', 'print', 'repr', 'isinstance', '__import__', 'str', 'open'): setattr(builtins, n, None)", status: "*"},
			{name: "builtins deleted", code: "import builtins\ndel builtins.len, builtins.isinstance", status: "*"},
			{name: "fork", code: "import os\nif os.fork() == 0:\n    x = 'child'\nelse:\n    os.wait(); print('parent')", out: "parent\n"},
			{name: "fork prints", code: "import os\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n    os.waitpid(pid, 0); print('parent')", out: "child\nparent\n"},
			{name: "fork raises", code: "import os\npid = os.fork()\nif pid == 0: raise ValueError('in the child')\nos.waitpid(pid, 0)[1] >> 8", main: "1", err: "*"},
			{name: "fork exits", code: "import os, sys\npid = os.fork()\nif pid == 0: sys.exit(7)\nos.waitpid(pid, 0)[1] >> 8", main: "7"},
			{name: "recursion", code: "def r(): return r()\nr()", fails: "RecursionError"},
			{name: "str raises", code: "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E", fails: "E\n"},
			{name: "canary", code: "class Any:\n    def __getattr__(self, n): return lambda *a, **k: 'x'\nAny()", main: "*"},
			{name: "endless thread", code: "import threading, time\ndef w():\n    while True: time.sleep(0.01)\nthreading.Thread(target=w).start()"},
			{name: "os._exit", code: "import os\nprint('last')\nos._exit(3)", out: "last\n", lost: "exited with code 3"},
			{name: "next", code: "'x' in dir()", main: "False"},
			{name: "segfault", code: "import ctypes\nctypes.string_at(0)", err: "*", lost: "ended by SIGSEGV"},
			{name: "next", code: "1", main: "1"},
			{name: "kills itself", code: "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", lost: "killed"},
			{name: "next", code: "1", main: "1"},
			{name: "abort", code: "import os\nos.abort()", err: "*", lost: "ended by SIGABRT"},
			{name: "next", code: "1", main: "1"},
		})
	})
}

// An interrupt ends a cell and keeps what there is, whatever the cell does against it.
func TestPythonInterrupts(t *testing.T) {
	for name, code := range map[string]string{
		"loop":      "print('on')\nwhile True: pass",
		"sleep":     "print('on')\nimport time\ntime.sleep(1000)",
		"await":     "print('on')\nimport asyncio\nawait asyncio.sleep(1000)",
		"child":     "print('on')\nimport subprocess\nsubprocess.run(['sleep', '1000'])",
		"repr":      "print('on')\nclass R:\n    def __repr__(self):\n        while True: pass\nR()",
		"printing":  "while True: print('on')",
		"ignoring":  "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on')\nwhile True: pass",
		"swallower": "while True:\n    try:\n        print('on')\n        while True: pass\n    except KeyboardInterrupt: pass",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := func(t *testing.T, b *bench) {
				b.timeouts(name == "ignoring" || name == "swallower")
				b.code(interpreter.Python, "kept = 1")
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				o := b.runUntil(ctx, interpreter.Cell{Code: code, MaxOutput: 1 << 20}, func(e *interpreter.Event) {
					if e.Type == interpreter.Stdout {
						cancel() // as when its caller goes away
					}
				})
				next := b.code(interpreter.Python, "kept")
				if name == "ignoring" || name == "swallower" {
					if o.end.Status != interpreter.Lost || next.failure == nil {
						t.Errorf("ended %+v, next %+v", o.end, next)
					}
					return
				}
				if o.end.Status != interpreter.Interrupted || next.main() != "1" || next.out != "" {
					t.Errorf("ended %+v, next %q %+v", o.end, next.main(), next.end)
				}
				if name != "printing" && (o.failure == nil || o.failure.Name != "KeyboardInterrupt") {
					t.Errorf("failure %+v", o.failure)
				}
			}
			if name == "loop" || name == "await" || name == "child" {
				pythons(t, test)
				return
			}
			test(t, bare(t))
		})
	}
}

func TestPythonTimeout(t *testing.T) {
	b := bare(t)
	o := b.run(interpreter.Cell{Code: "while True: pass", Timeout: 50 * time.Millisecond})
	if o.end.Status != interpreter.TimedOut || !strings.Contains(o.end.Reason, "50ms") {
		t.Errorf("%+v", o.end)
	}
}

// Variables and directory of a cell are there while it runs.
func TestPythonPlace(t *testing.T) {
	pythons(t, func(t *testing.T, b *bench) {
		code := "import os\nos.getcwd(), os.environ.get('A'), os.environ['SANDBOX']"
		inside := b.run(interpreter.Cell{Code: code, Dir: "/tmp", Env: map[string]string{"A": "b", "SANDBOX": "x"}})
		after := b.run(interpreter.Cell{Code: code})
		if inside.main() != "('/tmp', 'b', 'x')" || after.main() != "('"+b.user.home+"', None, 'yes')" {
			t.Errorf("inside %s, after %s", inside.main(), after.main())
		}
		if o := b.run(interpreter.Cell{Code: "1", Dir: "/no/where"}); o.failure == nil || o.failure.Name != "FileNotFoundError" {
			t.Errorf("no directory: %+v", o)
		}
	})
}

// Output has its bound, and what is over it is counted.
func TestPythonOutput(t *testing.T) {
	b := bare(t)
	o := b.run(interpreter.Cell{Code: "print('ä' * 100)\ndisplay('x' * 100)\nprint('end')", MaxOutput: 51})
	if o.out != strings.Repeat("ä", 25) || o.end.Cut < 250 || len(o.results) != 0 {
		t.Errorf("%q %+v", o.out, o.end)
	}
	o = b.run(interpreter.Cell{Code: "print('x' * 100_000_000)", MaxOutput: 1000})
	if len(o.out) != 1000 || o.end.Cut != 100_000_001-1000 {
		t.Errorf("%d %+v", len(o.out), o.end)
	}
	o = b.run(interpreter.Cell{Code: "display({'text/html': 'x' * 30_000_000, 'text/plain': 'small'}, raw=True)"})
	if len(o.results) != 1 || !strings.Contains(text(o.results[0], "text/plain"), "small\ntext/html of") {
		t.Errorf("%+v", o.end)
	}
	o = b.run(interpreter.Cell{Code: "import os\nos.write(1, 'ä'.encode()[:1]); os.write(1, 'ä'.encode()[1:])"})
	if strings.ReplaceAll(o.out, "\ufffd", "") != "ä" {
		t.Errorf("%q", o.out)
	}
}

// A cell tells which files it made or changed.
func TestFiles(t *testing.T) {
	b := bare(t)
	b.code(interpreter.Python, "open('old.txt', 'w').write('x')\nimport os\nos.makedirs('a/b'); os.makedirs('.hidden'); os.makedirs('node_modules')")
	b.code(interpreter.Python, "import time\ntime.sleep(0.02)")
	o := b.code(interpreter.Python, "for f in ('new.csv', 'a/b/deep.png', '.hidden/x', 'node_modules/y'): open(f, 'w').write('abc')")
	if got, want := o.files(), []string{"deep.png", "new.csv"}; !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	for _, f := range o.end.Files {
		if f.Size != 3 || f.Type == "" || filepath.Dir(f.Path) == "." {
			t.Errorf("%+v", f)
		}
	}
}
