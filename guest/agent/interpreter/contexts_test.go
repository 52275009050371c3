// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	kernels "github.com/caisson-run/caisson/guest/agent/interpreter"
	"github.com/caisson-run/caisson/interpreter"
)

func (b *bench) create(o interpreter.ContextOptions) interpreter.Context {
	b.Helper()
	c, err := b.all.Create(b.user, o)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// Contexts side by side have states of their own.
func TestManyContexts(t *testing.T) {
	b := bare(t)
	const many = 50
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			c, err := b.all.Create(b.user, interpreter.ContextOptions{ID: fmt.Sprintf("c%d", i)})
			if err != nil {
				t.Error(err)
				return
			}
			b.run(interpreter.Cell{Context: c.ID, Code: fmt.Sprintf("x = %d", i)})
		})
	}
	all.Wait()
	for i := range many {
		all.Go(func() {
			if o := b.run(interpreter.Cell{Context: fmt.Sprintf("c%d", i), Code: "x"}); o.main() != fmt.Sprint(i) {
				t.Errorf("context %d has %q %+v", i, o.main(), o.end)
			}
		})
	}
	all.Wait()
	if n := len(b.all.List(b.user)); n != many {
		t.Errorf("%d contexts", n)
	}
}

func TestContextsAreBounded(t *testing.T) {
	b := system(t)
	for i := range kernels.MaxContexts {
		if _, err := b.all.Prepare(b.user, interpreter.Cell{Language: "bash"}); i == 0 && err != nil {
			t.Fatal(err)
		}
		if i == 64 {
			break
		}
	}
	if _, err := b.all.Prepare(b.user, interpreter.Cell{Language: "bash"}); !errors.Is(err, kernels.ErrExhausted) {
		t.Errorf("a cell behind 64: %v", err)
	}
}

// Two cells of one context run in order, and the end of one is not the other's.
func TestOrder(t *testing.T) {
	b := bare(t)
	c := b.create(interpreter.ContextOptions{})
	b.run(interpreter.Cell{Context: c.ID, Code: "order = []"})
	var all sync.WaitGroup
	first := make(chan struct{})
	all.Go(func() {
		once := sync.OnceFunc(func() { close(first) })
		b.runUntil(context.Background(), interpreter.Cell{Context: c.ID, Code: "import time\nprint(1)\ntime.sleep(0.2)\norder.append(1)"}, func(e *interpreter.Event) {
			if e.Type == interpreter.Stdout {
				once()
			}
		})
	})
	<-first
	if o := b.run(interpreter.Cell{Context: c.ID, Code: "order"}); o.main() != "[1]" || o.out != "" {
		t.Errorf("%q %q", o.main(), o.out)
	}
	all.Wait()
}

// What runs when its context goes is told so, and its kernel ends.
func TestContextGoes(t *testing.T) {
	b := bare(t)
	for name, end := range map[string]func(kernels.User, string) error{
		"restarted": b.all.Restart, "removed": b.all.Remove, "interrupted": b.all.Interrupt,
	} {
		t.Run(name, func(t *testing.T) {
			c := b.create(interpreter.ContextOptions{})
			b.run(interpreter.Cell{Context: c.ID, Code: "x = 1"})
			o := b.runUntil(context.Background(), interpreter.Cell{Context: c.ID, Code: "print('on')\nwhile True: pass"}, func(e *interpreter.Event) {
				if e.Type == interpreter.Stdout {
					if err := end(b.user, c.ID); err != nil {
						t.Error(err)
					}
				}
			})
			want := interpreter.Lost
			if name == "interrupted" {
				want = interpreter.Interrupted
			}
			if o.end.Status != want || !strings.Contains(o.end.Reason, name) {
				t.Errorf("%+v", o.end)
			}
			if name == "removed" {
				if _, err := b.all.Prepare(b.user, interpreter.Cell{Context: c.ID}); !errors.Is(err, kernels.ErrNotFound) {
					t.Errorf("it is still there: %v", err)
				}
				return
			}
			left := map[string]string{"restarted": "False", "interrupted": "True"}[name]
			if o := b.run(interpreter.Cell{Context: c.ID, Code: "'x' in dir()"}); o.main() != left {
				t.Errorf("the state is there: %s", o.main())
			}
		})
	}
}

// A copy of a sandbox has random numbers of its own.
func TestReseed(t *testing.T) {
	for language, code := range map[string]string{
		interpreter.Python:     "import random\nrandom.seed(1)\n%s\nrandom.random()",
		interpreter.JavaScript: "%s\n;Math.random()",
		interpreter.Bash:       "RANDOM=1\n%s\necho $RANDOM",
	} {
		t.Run(language, func(t *testing.T) {
			if language == interpreter.JavaScript {
				need(t, "node")
			}
			var numbers []string
			for range 2 {
				b := bare(t)
				seeded, draws, _ := strings.Cut(code, "%s\n")
				b.code(language, seeded)
				b.all.Reseed()
				o := b.code(language, draws)
				numbers = append(numbers, o.main()+o.out)
			}
			if numbers[0] == numbers[1] || numbers[0] == "" {
				t.Errorf("both have %q", numbers[0])
			}
		})
	}
}

// A thousand cells leave nothing behind.
func TestThousandCells(t *testing.T) {
	b := bare(t)
	files := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	inside := "import os\nlen(os.listdir('/proc/self/fd'))"
	b.code(interpreter.Python, "1")
	ours, theirs := files(), b.code(interpreter.Python, inside).main()
	cells := 1000
	if testing.Short() {
		cells = 100
	}
	for i := range cells {
		if o := b.code(interpreter.Python, "1+1"); o.main() != "2" {
			t.Fatalf("cell %d: %+v", i, o)
		}
	}
	if now := files(); now > ours { // those of tests before may be closed meanwhile
		t.Errorf("%d files are open, %d were", now, ours)
	}
	if now := b.code(interpreter.Python, inside).main(); now != theirs {
		t.Errorf("the kernel has %s files open, had %s", now, theirs)
	}
}

func BenchmarkCell(b *testing.B) {
	for _, language := range []string{interpreter.Python, interpreter.JavaScript, interpreter.Bash} {
		for name, with := range map[string]func(testing.TB) *bench{"bare": bare, "system": system} {
			b.Run(language+"/"+name, func(b *testing.B) {
				s := with(b)
				code := map[string]string{interpreter.Bash: "echo 2"}[language]
				if code == "" {
					code = "1+1"
				}
				s.code(language, code)
				for b.Loop() {
					s.code(language, code)
				}
			})
		}
	}
}

// A cell that names no context runs in none of another language, whatever its ID: its text
// was judged as what it says it is.
func TestDefaultContextSpeaksItsLanguage(t *testing.T) {
	b := bare(t)
	b.create(interpreter.ContextOptions{ID: interpreter.JavaScript})
	for _, language := range []string{interpreter.JavaScript, interpreter.TypeScript} {
		if _, err := b.all.Prepare(b.user, interpreter.Cell{Language: language, Code: "import os"}); !errors.Is(err, kernels.ErrInvalid) {
			t.Errorf("a cell of %s in a context of Python: %v", language, err)
		}
	}
}

// Making a context of ours runs nothing, though its directory has what a kernel would load:
// only cells are decided.
func TestCreateRunsNothing(t *testing.T) {
	b := bare(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ast.py"), []byte("open('ran', 'w')\nraise SystemExit\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	made := b.create(interpreter.ContextOptions{Dir: dir})
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a module of its directory ran")
	}
	if o := b.run(interpreter.Cell{Context: made.ID, Code: "1"}); o.end.Status != interpreter.Lost {
		t.Errorf("the module is none that is loaded: %+v", o.end)
	}
	for name, tt := range map[string]struct {
		o    interpreter.ContextOptions
		want error
	}{
		"no directory": {interpreter.ContextOptions{Dir: "/no/where"}, kernels.ErrInvalid},
		"a file":       {interpreter.ContextOptions{Dir: filepath.Join(dir, "ast.py")}, kernels.ErrInvalid},
		"no program":   {interpreter.ContextOptions{Language: "bash", Env: map[string]string{"PATH": dir}}, kernels.ErrUnsupported},
	} {
		if _, err := b.all.Create(b.user, tt.o); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// After a reseed, what Node draws is the kernel's inside. The functions
// judge what they are given, and shape what they give, as they did.
func TestReseedNode(t *testing.T) {
	need(t, "node")
	b := bare(t)
	b.code(interpreter.JavaScript, "const crypto = require('crypto'), util = require('util'); crypto.randomUUID()")
	b.all.Reseed()
	b.expect(t, interpreter.JavaScript, []one{
		{name: "numbers", code: "[Math.random() < 1, crypto.randomBytes(4).length, crypto.randomInt(3) < 3, crypto.randomInt(5, 6)]", main: "[ true, 4, true, 5 ]"},
		{name: "uuid", code: "[crypto.randomUUID(), globalThis.crypto.randomUUID()].every(u => /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(u))", main: "true"},
		{name: "part", code: "const u = new Uint16Array(400); crypto.randomFillSync(u, 100, 200); [u.subarray(0, 100).some(x => x), u.subarray(100, 300).some(x => x), u.subarray(300).some(x => x)]", main: "[ false, true, false ]"},
		{name: "web", code: "globalThis.crypto.getRandomValues(new Uint8Array(32)).some(x => x)", main: "true"},
		{name: "callbacks", code: "[(await util.promisify(crypto.randomBytes)(3)).length, (await util.promisify(crypto.randomFill)(new Uint8Array(32))).some(x => x), await util.promisify(crypto.randomInt)(7, 8)]", main: "[ 3, true, 7 ]"},
		{name: "imported", code: "import { randomBytes } from 'crypto'\nrandomBytes === crypto.randomBytes", main: "true"},
		{name: "bad size", code: "crypto.randomBytes(-1)", fails: "RangeError"},
		{name: "bad options", code: "crypto.randomUUID(1)", fails: "TypeError"},
		{name: "bad range", code: "crypto.randomInt(5, 5)", fails: "RangeError"},
		{name: "no array", code: "globalThis.crypto.getRandomValues(1)", fails: "Type"},
		{name: "keys", code: "crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.type", main: "'private'"},
	})
}

// So have the generators of modules: of names of temporary files, and of OpenSSL's keys.
func TestReseedModules(t *testing.T) {
	b := bare(t)
	b.code(interpreter.Python, "import tempfile, ssl, _ssl\nnames, added = tempfile._get_candidate_names(), []\n_ssl.RAND_add = lambda *a: added.append(len(a[0]))")
	b.all.Reseed()
	if o := b.code(interpreter.Python, "tempfile._get_candidate_names() is names, added"); o.main() != "(False, [32])" {
		t.Errorf("%s %+v", o.main(), o.failure)
	}
}
