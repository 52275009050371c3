// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
)

func TestJavaScript(t *testing.T) {
	need(t, "node")
	b := system(t)
	b.expect(t, interpreter.JavaScript, []one{
		{name: "value", code: "1+1", main: "2"},
		{name: "no value", code: "const x = 41"},
		{name: "const stays", code: "x + 1", main: "42"},
		{name: "const again", code: "const x = 1; x", main: "1"},
		{name: "class stays", code: "class K { m() { return 3 } }"},
		{name: "class", code: "new K().m()", main: "3"},
		{name: "object", code: "({a: 1, b: [1, 2]})", main: "{ a: 1, b: [ 1, 2 ] }"},
		{name: "string", code: "'abc'", main: "'abc'"},
		{name: "negative zero", code: "-0", main: "-0"},
		{name: "bigint", code: "2n ** 70n", main: "1180591620717411303424n"},
		{name: "null", code: "null", main: "null"},
		{name: "await", code: "await Promise.resolve(3)", main: "3"},
		{name: "promise", code: "Promise.resolve(4)", main: "4"},
		{name: "await in const", code: "const y = await new Promise(r => setTimeout(() => r(5), 5))\ny", main: "5"},
		{name: "order", code: "console.log('a'); console.error('b'); console.log('c', {d: 1})", out: "a\nc { d: 1 }\n", err: "b"},
		{name: "child", code: "console.log('a'); require('child_process').execSync('echo b', {stdio: 'inherit'}); console.log('c')", out: "a\nb\nc\n"},
		{name: "require", code: "require('path').join('a', 'b')", main: "'a/b'"},
		{name: "import", code: "import { join } from 'node:path'\nimport fs, { existsSync as there } from 'fs';\nimport * as os from \"os\"\nimport 'url'\n[join('a', 'b'), there('/'), typeof fs.readFileSync, os.EOL]", main: "[ 'a/b', true, 'function', '\\n' ]"},
		{name: "imported stays", code: "join('x', 'y')", main: "'x/y'"},
		{name: "dynamic import", code: "(await import('path')).sep", main: "'/'"},
		{name: "import in a string", code: "`import x from 'y' ${'import(1)'}` + /import z from 'w'/.source", main: "\"import x from 'y' import(1)import z from 'w'\""},
		{name: "export", code: "export const e1 = 1\nexport default function named() { return 2 }\nexport { e1 }\ne1 + named()", main: "3"},
		{name: "throws", code: "function f() { throw new TypeError('no') }\nf()", fails: "TypeError\nno\nTypeError: no\n    at f (cell-"},
		{name: "at the line", code: "\n\nnull.x", fails: ":3:6"},
		{name: "throws a string", code: "throw 'text'", fails: "Thrown\n'text'"},
		{name: "rejects", code: "await Promise.reject(new RangeError('far'))", fails: "RangeError\nfar"},
		{name: "syntax", code: "let = = 1", fails: "SyntaxError"},
		{name: "unclosed", code: "'abc", fails: "SyntaxError"},
		{name: "NUL", code: "'a\x00b'.length", main: "3"},
		{name: "surrogate", code: "'\\ud800'", main: "'\\ud800'"},
		{name: "printed surrogate", code: "console.log('\\ud800')", out: "\ufffd\n"},
		{name: "emoji", code: "console.log('\U0001F600')", out: "\U0001F600\n"},
		{name: "comment", code: "// nothing"},
		{name: "empty", code: ""},
		{name: "inspect throws", code: "({ [Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('no') } })", fails: "Error\nno"},
		{name: "late throw", code: "setTimeout(() => { throw new Error('late') }, 0); await new Promise(r => setTimeout(r, 20)); 1", main: "1", err: "late"},
		{name: "display", code: "display({'text/html': '<b>', 'text/plain': 'b'}, {raw: true}); 1", main: "1"},
		{name: "exit", code: "console.log('last'); process.exit(3)", out: "last\n", lost: "exited with code 3"},
		{name: "next", code: "typeof x", main: "'undefined'"},
		{name: "abort", code: "process.abort()", err: "*", lost: "ended by SIGABRT"},
		{name: "next", code: "1", main: "1"},
		{name: "protocol", code: "require('fs').writeSync(4, 'nonsense\\n')", lost: "protocol"},
		{name: "next", code: "1", main: "1"},
		{name: "another cell", code: "require('fs').writeSync(4, '{\"id\":\"9999\",\"type\":\"stdout\",\"text\":\"x\"}\\n')", lost: "protocol"},
		{name: "next", code: "1", main: "1"},
		{name: "ready again", code: "require('fs').writeSync(4, '{\"ready\":{}}\\n')", lost: "protocol"},
		{name: "next", code: "1", main: "1"},
		{name: "event of the agent", code: "require('fs').writeSync(4, '{\"id\":\"2\",\"type\":\"started\",\"count\":7}\\n')", lost: "protocol"},
		{name: "next", code: "1", main: "1"},
	})
}

func TestJavaScriptInterrupts(t *testing.T) {
	need(t, "node")
	for name, code := range map[string]string{
		"loop":       "console.log('on'); while (true);",
		"catching":   "console.log('on'); while (true) { try { while (true); } catch {} }",
		"await":      "console.log('on'); await new Promise(r => setTimeout(r, 1e6))",
		"after":      "await null; console.log('on'); while (true);",
		"timer":      "setInterval(() => console.log('on'), 1); await new Promise(() => {})",
		"child":      "console.log('on'); require('child_process').execSync('sleep 1000')",
		"in a timer": "setTimeout(() => { console.log('on'); while (true); }, 1); await new Promise(() => {})",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := system(t)
			b.timeouts(false)
			b.code(interpreter.JavaScript, "const kept = 1")
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			o := b.runUntil(ctx, interpreter.Cell{Language: "js", Code: code}, func(e *interpreter.Event) {
				if e.Type == interpreter.Stdout {
					cancel()
				}
			})
			next := b.code(interpreter.JavaScript, "await new Promise(r => setTimeout(r, 30)); kept")
			if o.end.Status != interpreter.Interrupted || next.main() != "1" || next.out != "" {
				t.Errorf("ended %+v %s, next %q %q %+v", o.end, o.err, next.main(), next.out, next.end)
			}
		})
	}
}

func TestJavaScriptPlace(t *testing.T) {
	need(t, "node")
	b := system(t)
	code := "[process.cwd(), process.env.A, process.env.SANDBOX]"
	inside := b.run(interpreter.Cell{Language: "js", Code: code, Dir: "/tmp", Env: map[string]string{"A": "b", "SANDBOX": "x"}})
	after := b.code(interpreter.JavaScript, code+".join()")
	if inside.main() != "[ '/tmp', 'b', 'x' ]" || after.main() != "'"+b.user.home+",,yes'" {
		t.Errorf("inside %s, after %s", inside.main(), after.main())
	}
	if err := os.WriteFile(filepath.Join(b.user.home, "mine.mjs"), []byte("export const a = 7"), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := b.code(interpreter.JavaScript, "import { a } from './mine.mjs'\na"); o.main() != "7" {
		t.Errorf("%+v %+v", o.end, o.failure)
	}
}

// Where Node cannot strip types and no compiler is installed, the cell says what to install.
func TestTypeScript(t *testing.T) {
	need(t, "node")
	b := system(t)
	o := b.code(interpreter.TypeScript, "const n: number = 41\ninterface P { a: string }\nn + 1")
	if o.failure != nil && o.failure.Name == "UnsupportedError" {
		t.Skip(o.failure.Value)
	}
	if o.main() != "42" {
		t.Errorf("%+v %+v", o.end, o.failure)
	}
	if o := b.code(interpreter.JavaScript, "n"); o.main() != "41" {
		t.Errorf("JavaScript has another kernel: %+v", o.failure)
	}
}
