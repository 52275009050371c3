// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"context"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

func TestBash(t *testing.T) {
	b := system(t)
	b.expect(t, interpreter.Bash, []one{
		{name: "output", code: "echo a; echo b >&2; echo c", out: "a\nc\n", err: "b"},
		{name: "state", code: "cd /tmp; x=5; f() { echo f$1; }; export E=e; declare -A m=([k]=v); alias hi='echo aliased'"},
		{name: "state stays", code: "pwd; f $x; echo ${m[k]}; hi; bash -c 'echo $E'", out: "/tmp\nf5\nv\naliased\ne\n"},
		{name: "status", code: "(exit 3)", fails: "ExitCode\n3"},
		{name: "false", code: "false", fails: "ExitCode\n1"},
		{name: "not found", code: "nonsense", err: "command not found", fails: "127"},
		{name: "many lines", code: "if true; then\n  echo yes\nfi\ncat <<END\nhere $x\nEND", out: "yes\nhere 5\n"},
		{name: "unclosed", code: "echo 'abc", err: "unexpected EOF", fails: "ExitCode"},
		{name: "syntax", code: "if; then", err: "syntax error", fails: "ExitCode\n2"},
		{name: "stdin", code: "cat; read a; echo \"[$a]\"", out: "[]\n"},
		{name: "exclamation", code: "echo 'hi!'; echo \"hi!\"", out: "hi!\nhi!\n"},
		{name: "not ASCII", code: "echo äöü €; printf '\\xff\\n'", out: "äöü €\n\ufffd\n"},
		{name: "NUL", code: "echo a\x00b", err: "NUL byte", fails: "ExitCode\n2"},
		{name: "background", code: "sleep 1000 & kill $!; wait 2>/dev/null; echo done", out: "done\n", err: "*"},
		{name: "holds the output", code: "sleep 1000 & echo begun", out: "begun\n", err: "*"},
		{name: "kill it", code: "kill %1", err: "*"},
		{name: "own descriptors", code: "exec 3>&1; echo three >&3; exec 3>&-", out: "three\n"},
		{name: "nothing inherited", code: "! ls -l /proc/self/fd | grep socket"},
		{name: "return", code: "return 4", err: "return", fails: "ExitCode"},
		{name: "function status", code: "g() { return 4; }; g", fails: "ExitCode\n4"},
		{name: "unset variable", code: "set -u; echo $undefined; echo not", err: "unbound", fails: "ExitCode"},
		{name: "flags stay", code: "case $- in *u*) echo u;; esac; set +u", out: "u\n"},
		{name: "trace", code: "set -x; echo a", out: "a\n", err: "+ echo a\n"},
		{name: "trace ends", code: "set +x", err: "*"},
		{name: "IFS", code: "IFS=,; unset PATH"},
		{name: "after IFS", code: "echo a", out: "a\n"},
		{name: "shadowed", code: "printf() { echo mine; }; read() { echo mine; }; eval() { echo mine; }; alias builtin='echo no'"},
		{name: "trap", code: "trap 'echo trapped' EXIT USR1; kill -USR1 $$", out: "trapped\n"},
		{name: "exit", code: "echo last; exit 3", out: "last\ntrapped\n", err: "*", lost: "exited with code 3"},
		{name: "next", code: "echo \"[$x]\"", out: "[]\n"},
		{name: "set -e", code: "set -e; echo a; false; echo b", out: "a\n", err: "*", lost: "exited with code 1"},
		{name: "next", code: "echo 1", out: "1\n"},
		{name: "set -e and no failure", code: "set -e; true"},
		{name: "exec", code: "exec echo replaced", out: "replaced\n", lost: "exited with code 0"},
		{name: "next", code: "echo 1", out: "1\n"},
		{name: "killed", code: "kill -KILL $$", lost: "killed"},
		{name: "next", code: "echo 1", out: "1\n"},
		{name: "status of before", code: "false", fails: "1"},
		{name: "next", code: "echo 1", out: "1\n"},
		{name: "protocol", code: "for f in 10 11 12 255; do { echo nonsense >&$f; } 2>/dev/null; done; sleep 5", err: "*", lost: "protocol"},
		{name: "next", code: "echo 1", out: "1\n"},
	})
	b.code(interpreter.Bash, "(exit 7)")
	if o := b.code(interpreter.Bash, "echo $?"); o.out != "7\n" {
		t.Errorf("the status of the cell before is %q", o.out)
	}
}

func TestBashInterrupts(t *testing.T) {
	for name, code := range map[string]string{
		"program":  "echo on; sleep 1000; echo after",
		"loop":     "echo on; while :; do :; done",
		"programs": "echo on; while :; do sleep 0.01; done; echo after",
		"subshell": "(echo on; sleep 1000; echo inner); echo after",
		"pipe":     "while :; do echo on; sleep 0.05; done | cat; echo after",
		"printing": "yes on",
		"ignoring": "trap '' INT; echo on; while :; do sleep 0.1; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := system(t)
			b.timeouts(name == "ignoring")
			b.code(interpreter.Bash, "kept=1")
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			o := b.runUntil(ctx, interpreter.Cell{Language: "bash", Code: code, MaxOutput: 1 << 20, Env: map[string]string{"A": "b"}}, func(e *interpreter.Event) {
				if e.Type == interpreter.Stdout {
					cancel()
				}
			})
			next := b.code(interpreter.Bash, "echo \"$kept$A\"")
			if name == "ignoring" {
				if o.end.Status != interpreter.Lost || next.out != "\n" {
					t.Errorf("ended %+v, next %q", o.end, next.out)
				}
				return
			}
			// Bash may go on with the line after a pipe, at a terminal, too.
			on := name != "pipe" && strings.Contains(o.out, "after")
			if o.end.Status != interpreter.Interrupted || next.out != "1\n" || on {
				t.Errorf("ended %+v, next %q %+v", o.end, next.out, next.end)
			}
		})
	}
}

func TestBashPlace(t *testing.T) {
	b := system(t)
	code := "echo \"$PWD $A $SANDBOX\""
	inside := b.run(interpreter.Cell{Language: "bash", Code: code, Dir: "/tmp", Env: map[string]string{"A": "b'c $x", "SANDBOX": "x"}})
	after := b.code(interpreter.Bash, code)
	if inside.out != "/tmp b'c $x x\n" || after.out != b.user.home+"  yes\n" {
		t.Errorf("inside %q, after %q", inside.out, after.out)
	}
	for name, cell := range map[string]interpreter.Cell{
		"no directory": {Dir: "/no/where"},
		"a variable":   {Env: map[string]string{"a.b; touch x": "1"}},
	} {
		cell.Language, cell.Code = "bash", "echo ran"
		if o := b.run(cell); o.out != "" || o.end.Status != interpreter.Failed || o.err == "" {
			t.Errorf("%s: %q %q %+v", name, o.out, o.err, o.end)
		}
	}
	if o := b.code(interpreter.Bash, code); o.out != b.user.home+"  yes\n" {
		t.Errorf("at the end %q", o.out)
	}
}

// A program of 5 MB is read at once.
func TestLongSource(t *testing.T) {
	b := system(t)
	long := "x='" + strings.Repeat("a", 5<<20) + "'\n"
	if o := b.code(interpreter.Bash, long+"echo ${#x}"); o.out != "5242880\n" {
		t.Errorf("bash: %q %+v", o.out, o.end)
	}
	if o := bare(t).code(interpreter.Python, long+"print(len(x))"); o.out != "5242880\n" {
		t.Errorf("python: %q %+v", o.out, o.end)
	}
}
