// SPDX-License-Identifier: Apache-2.0

package code

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// manyTexts runs the script once for each text, in one interpreter: starting it
// is most of what reading takes.
const manyTexts = `
import io, json, sys
script, texts = json.load(sys.stdin)
for text in texts:
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogateescape")))
    sys.argv = ["-c", "file"]
    exec(compile(script, "script", "exec"), {"__name__": "__main__"})
`

// readPython has this host's python3 read texts, as they would be read inside.
func readPython(t testing.TB, texts ...string) []*Facts {
	t.Helper()
	in, err := json.Marshal([]any{pythonScript, texts})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-I", "-S", "-B", "-c", manyTexts)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var facts []*Facts
	for line := range bytes.Lines(out) {
		facts = append(facts, ReadPython(line))
	}
	if len(facts) != len(texts) {
		t.Fatalf("%d answers to %d texts", len(facts), len(texts))
	}
	return facts
}

// found are the findings under r, "kind name line:column".
func found(r *Rules, f *Facts) []string {
	var out []string
	for _, x := range r.Judge(f) {
		out = append(out, strings.TrimSpace(string(x.Kind)+" "+x.Name))
	}
	return out
}

// strict allows two modules and denies two calls.
var strict = &Rules{Listed: true, Allow: []string{"math", "random", "json", "path"}, DenyCalls: []string{"open", "os.system", "fetch", "fs.rmSync", "*.to_pickle"}}

// TestPythonEvasions: ways around lists, each of which must be found.
func TestPythonEvasions(t *testing.T) {
	tests := []struct{ src, want string }{
		{"import os", "import os"},
		{"import os as o", "import os"},
		{"import math, os", "import os"},
		{"import os.path", "import os"},
		{"from os import path", "import os"},
		{"from os import *\nsystem('x')", "call os.system"},
		{"def f():\n  class A:\n    import os", "import os"},
		{"try:\n  import os\nexcept ImportError: pass", "import os"},
		{"if 0: import os", "import os"},
		{"\\\nimport\\\n os", "import os"},
		{"import 𝓸𝓼", "import os"},
		{"__import__('os')", "import os"},
		{"__import__('o' + 's')", "import os"},
		{"__import__('so'[::-1])", "import os"},
		{"__import__('xos'[1:])", "import os"},
		{"__import__(''.join(['o', 's']))", "import os"},
		{"__import__(f'{chr(111)}s')", "import os"},
		{"__import__('%s%s' % ('o', 's'))", "import os"},
		{"__import__('{}s'.format('o'))", "import os"},
		{"__import__(b'os'.decode())", "import os"},
		{"__import__('OS'.lower())", "import os"},
		{"n = 'o'\nn2 = n + 's'\n__import__(n2)", "import os"},
		{"__import__(input())", "dynamic_import __import__"},
		{"import base64\n__import__(base64.b64decode('b3M=').decode())", "dynamic_import __import__"},
		{"import codecs\n__import__(codecs.decode('bf', 'rot13'))", "dynamic_import __import__"},
		{"f = __import__\nf('os')", "import os"},
		{"f = g = __import__\ng('os')", "import os"},
		{"(f := __import__)('os')", "import os"},
		{"[__import__][0]('os')", "import os"},
		{"{'a': __import__}['a']('os')", "import os"},
		{"f, g = __import__, 1\nf('os')", "import os"},
		{"for f in [__import__]: f('os')", "import os"},
		{"def g(f=__import__): f('os')", "import os"},
		{"list(map(__import__, ['os']))", "dynamic_import __import__"},
		{"import builtins\nbuiltins.__import__('os')", "import os"},
		{"import builtins as b\ngetattr(b, '__im' + 'port__')('os')", "import os"},
		{"__builtins__.__dict__['__import__']('os')", "import os"},
		{"__builtins__['__import__']('os')", "import os"},
		{"vars(__builtins__)['__import__']('os')", "import os"},
		{"globals()['__builtins__']", "dynamic_code __builtins__"},
		{"globals().get('__builtins__')", "dynamic_code __builtins__"},
		{"import importlib\nimportlib.import_module('os')", "import os"},
		{"from importlib import import_module as m\nm('os')", "import os"},
		{"import importlib as i\ngetattr(i, 'import_module')('os')", "import os"},
		{"import functools\nfunctools.partial(__import__, 'os')()", "dynamic_import __import__"},
		{"import sys\nsys.modules['os'].system('x')", "import os"},
		{"import sys\nsys.modules.get('os')", "import os"},
		{"import sys\nsys.modules[input()]", "dynamic_import sys.modules"},
		{"import random\nrandom._os.system('x')", "import os"},
		{"import random as r\nx = r._os\nx.remove('y')", "import os"},
		{"from random import _os", "import os"},
		{"eval('1')", "dynamic_code eval"},
		{"exec(b'1')", "dynamic_code exec"},
		{"e = eval\nx = [1]\nsorted(x, key=e)", "dynamic_code eval"},
		{"compile('1', '', 'eval')", "dynamic_code compile"},
		{"getattr(__builtins__, 'ev' + 'al')('1')", "dynamic_code eval"},
		{"getattr(__builtins__, input())('1')", "dynamic_code getattr(__builtins__, …)"},
		{"from builtins import exec as run\nrun('1')", "dynamic_code exec"},
		{"𝓮𝓿𝓪𝓵('1')", "dynamic_code eval"},
		{"@eval\n@str\nclass A: pass", "dynamic_code eval"},
		{"def eval(x): return x\neval('1')", "dynamic_code eval"},
		{"().__class__.__base__.__subclasses__()", "dynamic_code __subclasses__"},
		{"getattr((), '__class__').__mro__[1].__subclasses__()", "dynamic_code __subclasses__"},
		{"getattr(object, '__subcl' + 'asses__')()", "dynamic_code __subclasses__"},
		{"(lambda: 0).__globals__", "dynamic_code __globals__"},
		{"(lambda: 0).__code__.replace()", "dynamic_code __code__"},
		{"print.__self__", "dynamic_code __self__"},
		{"def g(): yield\ng().gi_frame.f_builtins", "dynamic_code f_builtins"},
		{"open('x')", "call open"},
		{"o = open\no('x')", "call open"},
		{"import io, os as q\ngetattr(q, 'sys' + 'tem')('x')", "call os.system"},
		{"import os\nf = os.__getattribute__('system')", "call os.system"},
		{"import os\nobject.__getattribute__(os, 'system')", "call os.system"},
		{"import os\nos.__dict__['system']('x')", "call os.system"},
		{"import os\nvars(os)['sys' 'tem']('x')", "call os.system"},
		{"import os, operator\noperator.attrgetter('system')(os)('x')", "call os.system"},
		{"from os import system as f", "call os.system"},
		{"df.to_pickle('x')", "call ?.to_pickle"},
		{"while True: pass", "endless_loop"},
		{"while 1:\n  for i in x: break", "endless_loop"},
		{"while not False:\n  def f(): return", "endless_loop"},
		{"import itertools\nfor i in itertools.count(): pass", "endless_loop"},
		{"x = 1\nwhile x: pass", "endless_loop"},
		{"import (", "unread"},
		{strings.Repeat("(", 5000), "unread"},
		{"# -*- coding: utf-7 -*-\n+AGkAbQBwAG8AcgB0 os", "import os"},
		{"# -*- coding: nothing -*-\nx", "unread"},
		{"import os\nx = 1\n" + strings.Repeat("x = x or x\n", 3000) + "x()", "import os"}, // in bounded time
		{"import os\na0 = 1\n" + chain(200), "unread"},                                     // too involved
	}
	var texts []string
	for _, tt := range tests {
		texts = append(texts, tt.src)
	}
	for i, facts := range readPython(t, texts...) {
		got, tt := found(strict, facts), tests[i]
		if !slices.ContainsFunc(got, func(s string) bool { return s == tt.want || strings.HasPrefix(s, tt.want) && tt.want == "unread" }) {
			t.Errorf("%.80q: want %q, got %q", tt.src, tt.want, got)
		}
	}
	// As it is started inside.
	s := Python(true)
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	cmd.Stdin = strings.NewReader("import os")
	out, err := cmd.Output()
	if err != nil || len(ReadPython(out).Imports) != 1 {
		t.Errorf("%q, %v", out, err)
	}
}

// chain is a program whose names double at each step.
func chain(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("a" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + " = a0 or a0 or ab or abx or abxx\n")
	}
	return b.String() + "a0 = ab or abx\na0()"
}

// TestJavaScriptEvasions is TestPythonEvasions for JavaScript.
func TestJavaScriptEvasions(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{`import fs from "fs"`, "import fs"},
		{`import "node:fs"`, "import fs"},
		{`import * as f from "fs/promises"`, "import fs/promises"},
		{`import {rmSync as x} from "fs"; x("/")`, "call fs.rmSync"},
		{`export * from "fs"`, "import fs"},
		{`export {rmSync} from "fs"`, "import fs"},
		{`await import("fs")`, "import fs"},
		{"await import(`f${'s'}`)", "import fs"},
		{`import(process.argv[2])`, "dynamic_import import"},
		{`require("fs")`, "import fs"},
		{`require("f"+"s")`, "import fs"},
		{`require("\x66s")`, "import fs"},
		{`require("\u{66}s")`, "import fs"},
		{`const a = "f"; const b = a + "s"; require(b)`, "import fs"},
		{`require(["f","s"].join(""))`, "import fs"},
		{`require(String.fromCharCode(102, 115))`, "import fs"},
		{`require(atob("ZnM="))`, "dynamic_import require"},
		{`const r = require; r("fs")`, "import fs"},
		{`let r; r = require; r("fs")`, "import fs"},
		{`(0, require)("fs")`, "import fs"},
		{`[require][0]("fs")`, "import fs"},
		{`require.call(null, "fs").rmSync("x")`, "dynamic_import require"},
		{`require.bind(null)("fs")`, "import fs"},
		{`["fs"].map(require)`, "dynamic_import require"},
		{`const {require: r} = module; r("fs")`, "import fs"},
		{`module.require("fs")`, "import fs"},
		{`module["req"+"uire"]("fs")`, "import fs"},
		{`process.mainModule.require("fs")`, "import fs"},
		{`process.getBuiltinModule("fs")`, "import fs"},
		{`const {getBuiltinModule: g} = process; g("fs")`, "import fs"},
		{`globalThis.process.getBuiltinModule("fs")`, "import fs"},
		{`globalThis["pro"+"cess"].getBuiltinModule("fs")`, "import fs"},
		{`globalThis[process.argv[1]]`, "dynamic_code globalThis[…]"},
		{`Reflect.get(globalThis, "eval")("1")`, "dynamic_code eval"},
		{`import {createRequire} from "module"; createRequire(import.meta.url)("fs")`, "import fs"},
		{`import m from "module"; m._load("fs")`, "import fs"},
		{`process.binding("fs")`, "dynamic_code process.binding"},
		{`require.cache`, "dynamic_import require.cache"},
		{`eval("1")`, "dynamic_code eval"},
		{`(0, eval)("1")`, "dynamic_code eval"},
		{`const e = eval; e("1")`, "dynamic_code eval"},
		{`window.eval("1")`, "dynamic_code eval"},
		{`\u0065val("1")`, "dynamic_code a name written with escapes"},
		{`globalThis.\u0065val("1")`, "dynamic_code a name written with escapes"},
		{`new Function("return 1")()`, "dynamic_code Function"},
		{`Function("return 1")()`, "dynamic_code Function"},
		{"Function`return 1`()", "dynamic_code Function"},
		{`(()=>{}).constructor("return 1")()`, "dynamic_code constructor"},
		{`[]["filter"]["constructor"]("return 1")()`, `dynamic_code ["constructor"]`},
		{`const F = (function(){}).constructor; F("x")`, "dynamic_code constructor"},
		{`function f(){}; const F = f.constructor; F("x")`, "dynamic_code constructor"},
		{`[].constructor.constructor("x")()`, "dynamic_code constructor"},
		{`setTimeout("alert(1)", 1)`, "dynamic_code setTimeout"},
		{"setInterval(`a${x}`, 1)", "dynamic_code setInterval"},
		{`const vm = require("vm"); vm.runInThisContext("1")`, "dynamic_code vm.runInThisContext"},
		{`import {Script} from "node:vm"; new Script("1")`, "dynamic_code vm.Script"},
		{`with (globalThis) { eval("1") }`, "dynamic_code with"},
		{`const fs = require("fs"); fs["rm"+"Sync"]("/")`, "call fs.rmSync"},
		{`const {rmSync} = require("fs"); rmSync("/")`, "call fs.rmSync"},
		{`const fs = require("fs"); fs[process.argv[2]]("/")`, "dynamic_code fs[…]"},
		{`fetch("http://x")`, "call fetch"},
		{`globalThis.fetch("http://x")`, "call fetch"},
		{`const f = fetch; f("x")`, "call fetch"},
		{`x.to_pickle()`, "call x.to_pickle"},
		{`f().to_pickle()`, "call ?.to_pickle"},
		{`while (true) {}`, "endless_loop"},
		{`for (;;) {}`, "endless_loop"},
		{`for (;;) { for (;;) { break } }`, "endless_loop"},
		{`do { f() } while (1)`, "endless_loop"},
		{`while (!0) { [1].map(() => { return 1 }) }`, "endless_loop"},
		{`while ([]) switch (x) { case 1: break }`, "endless_loop"},
		{`let x: number = 1`, "unread"},
		{`(`, "unread"},
		{strings.Repeat("(", 100000), "unread"},
		{strings.Repeat("!", 100000) + "1", "unread"},
		{strings.Repeat("a=>", 100000) + "1", "unread"},
		{strings.Repeat("if(a)", 100000) + "1", "unread"},
		{"x\x00", "unread"},
		{strings.Repeat("a", MaxText+1), "unread"},
		{"x <!-- /*\neval('1')\n//*/", "dynamic_code eval"},
		{"import 'fs'\nconst a0 = x\n" + strings.Repeat("a0 = a0 || a0\n", 3000), "unread"}, // too involved
		{strings.Repeat("while(1){", 400) + strings.Repeat("x;", 100000) + strings.Repeat("}", 400), "unread"},
	} {
		got := found(strict, JavaScript([]byte(tt.src)))
		if !slices.ContainsFunc(got, func(s string) bool { return s == tt.want || strings.HasPrefix(s, tt.want) && tt.want == "unread" }) {
			t.Errorf("%.80q: want %q, got %q", tt.src, tt.want, got)
		}
	}
}

// TestPlaces: findings stand where people look.
func TestPlaces(t *testing.T) {
	py := "import math\n\nif True:\n    é = 1; import os\nwhile True:\n    pass\neval('x')\n"
	js := "import path from 'path'\n\n  const c = require('child_process')\nfor (;;) {\n}\n\neval('x')\nwhile (true) { for (;;) {} }\n"
	for _, tt := range []struct {
		name  string
		facts *Facts
		want  []string
	}{
		{"python", readPython(t, py)[0], []string{"import 4:13", "dynamic_code 7:1", "endless_loop 5:1"}},
		{"javascript", JavaScript([]byte(js)), []string{"import 3:13", "dynamic_code 7:1", "endless_loop 4:1", "endless_loop 8:1", "endless_loop 8:16"}},
	} {
		var got []string
		for _, f := range strict.Judge(tt.facts) {
			got = append(got, strings.Join([]string{string(f.Kind), place(f)}, " "))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: want %q, got %q", tt.name, tt.want, got)
		}
	}
}

func place(f Finding) string { return strconv.Itoa(f.Line) + ":" + strconv.Itoa(f.Column) }

// TestOrdinary: what agents write every day has no finding where no list speaks
// against it.
func TestOrdinary(t *testing.T) {
	files, err := filepath.Glob("testdata/ordinary/*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v: too few to prove anything", len(files), err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var f *Facts
		if strings.HasSuffix(name, ".py") {
			f = readPython(t, string(src))[0]
		} else {
			f = JavaScript(src)
		}
		for _, x := range (&Rules{DenyCalls: []string{"os.system"}, DenyImports: []string{"ctypes"}}).Judge(f) {
			t.Errorf("%s:%d:%d: %s %s", name, x.Line, x.Column, x.Kind, x.Why)
		}
		if len(f.Imports) == 0 {
			t.Errorf("%s: no import was seen", name)
		}
	}
}

func TestFind(t *testing.T) {
	text := "print(1)"
	for _, tt := range []struct{ argv, want string }{
		{"ls -l", "none"},
		{"python3 -c CODE", "python CODE"},
		{"/usr/bin/python3.11 -c CODE", "python CODE"},
		{"python -cCODE", "python CODE"},
		{"python3 -Iuc CODE a b", "python CODE"},
		{"python3 -W ignore -X utf8 -c CODE", "python CODE"},
		{"python3 -Wignore -c CODE", "python CODE"},
		{"python3 --version", "none"},
		{"python3 -V", "none"},
		{"python3 -c", "none"},
		{"python3", "python stdin"},
		{"python3 -i", "python stdin"},
		{"python3 - a", "python stdin"},
		{"python3 x.py", "python unknown"},
		{"python3 -u x.py", "python unknown"},
		{"python3 -m pytest -c x", "python import pytest"},
		{"python3 -mpytest", "python import pytest"},
		{"python3 -m ?", "python unknown"},
		{"python3 -c ?", "python unknown"},
		{"python3 ? -c CODE", "python unknown"},
		{"pypy3 -c CODE", "python CODE"},
		{"node -e CODE", "javascript CODE"},
		{"node --eval=CODE", "javascript CODE"},
		{"node -p CODE", "javascript CODE"},
		{"node -r fs -e CODE", "javascript CODE import fs"},
		{"node --require=node:fs -e CODE", "javascript CODE import fs"},
		{"node --input-type=module -e CODE", "javascript CODE"},
		{"node x.js", "javascript unknown"},
		{"node --test", "javascript stdin"},
		{"node -", "javascript stdin"},
		{"nodejs -v", "none"},
		{"deno eval CODE", "typescript CODE"},
		{"deno run x.ts", "typescript unknown"},
		{"bun -e CODE", "typescript CODE"},
		{"tsx x.ts", "typescript unknown"},
	} {
		var words []Word
		for _, w := range strings.Fields(tt.argv) {
			words = append(words, Word{w, w != "?"})
		}
		x, ok := Find(words, Input{Outside: true})
		got := string(x.Language)
		switch {
		case !ok:
			got = "none"
		case x.Why != "":
			got += " unknown"
		case x.Stdin:
			got += " stdin"
		case x.Source != "":
			got += " " + x.Source
		}
		for _, m := range x.Imports {
			got += " import " + m
		}
		if got != tt.want {
			t.Errorf("%s: want %q, got %q", tt.argv, tt.want, got)
		}
	}
	if x, ok := Find([]Word{{"python3", true}}, Input{Text: &text}); !ok || x.Source != text || !x.AsFile {
		t.Errorf("a here-document: %+v", x)
	}
	if x, ok := Find([]Word{{"python3", true}}, Input{}); !ok || x.Why == "" {
		t.Errorf("a pipe: %+v", x)
	}
}

// TestAnswers: what comes out of the sandbox may be anything.
func TestAnswers(t *testing.T) {
	for _, out := range []string{
		"", "x", "{}{}", "[]", `{"imports": 1}`, `{"imports": [["os"]]}`, `{"imports": [["os", 1, 1, "x", 2]]}`, `{"imports": [["os", -1, 1]]}`,
		`{"imports": [["os", 1e9, 1]]}`, `{"imports": [["os", null, 1]]}`, `{"imports": [{"name": "os"}]}`, `{"other": 1}`, `{"error": ["x", 1]}`,
		`{"imports": [` + strings.Repeat(`["os", 1, 1],`, maxFacts) + `["os", 1, 1]]}`, strings.Repeat(" ", MaxAnswer+1),
	} {
		if f := ReadPython([]byte(out)); f.Fault == nil {
			t.Errorf("%.40q was taken", out)
		}
		if f := ReadTypeScript([]byte(out)); f.Fault == nil {
			t.Errorf("%.40q was taken as TypeScript", out)
		}
	}
	f := ReadPython([]byte(`{"imports": [["o\u001b[31ms\n` + strings.Repeat("a", 1000) + `", 0, 0, "x"]]}`))
	if name := f.Imports[0].Name; len(name) > maxName || strings.ContainsAny(name, "\x1b\n") || f.Imports[0].Line != 1 {
		t.Errorf("%+v", f.Imports[0])
	}
	if f := ReadTypeScript([]byte(`{"code": "let a         = require('fs')"}`)); len(f.Imports) != 1 {
		t.Errorf("%+v", f)
	}
	if f := ReadTypeScript([]byte(`{"missing": "no node"}`)); f.Fault == nil || f.Fault.Name != "no node" {
		t.Errorf("%+v", f.Fault)
	}
}

func FuzzJavaScript(f *testing.F) {
	files, _ := filepath.Glob("testdata/ordinary/*.*js")
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte("const {a: {b = require}} = module, [c] = [eval]; for (const x of [require]) x(`f${'s'}`)"))
	f.Fuzz(func(t *testing.T, src []byte) {
		facts := JavaScript(src)
		if facts.Fault != nil && strings.HasPrefix(facts.Fault.Name, "its reader failed") && !strings.Contains(facts.Fault.Name, "involved") {
			t.Fatalf("%q: %s", src, facts.Fault.Name)
		}
		lines := len(src) + 1 // several characters end a line
		for _, x := range strict.Judge(facts) {
			if x.Line < 1 || x.Line > lines+1 || x.Column < 1 || len(x.Name) > maxName {
				t.Fatalf("%q: %+v", src, x)
			}
		}
	})
}

func FuzzReadPython(f *testing.F) {
	f.Add([]byte(`{"imports": [["os", 1, 1, "import"]], "refs": [], "dynamic": [["eval", 1, 1, "code"]], "loops": [], "more": false}`))
	f.Add([]byte(`{"error": ["invalid syntax", 1, 1]}`))
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, x := range strict.Judge(ReadPython(out)) {
			if x.Line < 1 || x.Column < 1 || len(x.Name) > maxName || strings.ContainsAny(x.Why, "\x1b\n\r") {
				t.Fatalf("%+v", x)
			}
		}
	})
}

func BenchmarkJavaScript(b *testing.B) {
	src, err := os.ReadFile("testdata/ordinary/server.mjs")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		JavaScript(src)
	}
}

// JSX is not read, and says so: nothing of such a text passes for having no imports.
func TestJSXIsUnread(t *testing.T) {
	for _, src := range []string{
		"import cp from 'child_process'; const a = <div className=\"x\">hi</div>", "const a = <></>", "function A() { return <p>{require('fs')}</p> }",
		"import x from 'fs'; f(<B a={1} />)", "const f = <T,>(x) => x", "<a>{/* */}</a>",
	} {
		if f := JavaScript([]byte(src)); f.Fault == nil {
			t.Errorf("%s: it was read: %+v", src, *f)
		}
	}
}
