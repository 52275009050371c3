// SPDX-License-Identifier: Apache-2.0

package code

import (
	"path"
	"slices"
	"strings"
)

// Word is a word of a command: known or not.
type Word struct {
	Text  string
	Known bool
}

// Input is what a command reads on its standard input.
type Input struct {
	Outside bool    // what the whole call reads
	Text    *string // this; nil is not known
}

// Text is what an interpreter is started with.
type Text struct {
	Language Language
	Source   string // where Known
	Known    bool
	Stdin    bool // it is what the call gets on its standard input
	AsFile   bool // it is read as a file is
	// Imports are modules that the command line names.
	Imports []string
	// Why says why the text is not known: "it runs a file that is inside".
	Why, Hint string
}

// Find says which text a command has an interpreter run. ok is false for a command
// that is no interpreter, and for one that runs nothing.
func Find(words []Word, in Input) (t Text, ok bool) {
	if len(words) == 0 || !words[0].Known {
		return Text{}, false
	}
	l, ok := interpreter(path.Base(words[0].Text))
	if !ok {
		return Text{}, false
	}
	t = Text{Language: l.language}
	ok = l.read(words[1:], &t)
	if ok && t.Stdin {
		switch t.AsFile = true; {
		case in.Text != nil:
			t.Source, t.Known, t.Stdin = *in.Text, true, false
		case !in.Outside:
			t.Stdin = false
			t.Why, t.Hint = "its source comes from another program or from a file inside", "write the source into the call"
		}
	}
	return t, ok
}

// runtime is how a family of interpreters reads its arguments.
type runtime struct {
	language Language
	names    string
	inline   string // options whose value is source
	module   string // options whose value is a module to load
	valued   string // options with another value
	quiet    string // options by which nothing runs
	sub      string // subcommands that take source, or a file
	module1  bool   // -m MODULE ends the options and runs it
}

func runtimes() []runtime {
	return []runtime{
		{language: PythonLanguage, names: "python python3 pypy pypy3", inline: "-c", valued: "-W -X --check-hash-based-pycs",
			quiet: "-V -VV --version -h --help -? --help-env --help-xoptions --help-all", module1: true},
		{language: JavaScriptLanguage, names: "node nodejs", inline: "-e --eval -p --print -pe", module: "-r --require --import --loader --experimental-loader",
			valued: "-C --conditions --env-file --max-old-space-size --stack-size --title --inspect-port", quiet: "-v --version -h --help --v8-options"},
		{language: TypeScriptLanguage, names: "deno", sub: "eval run test bench serve", quiet: "-V --version -h --help"},
		{language: TypeScriptLanguage, names: "bun tsx ts-node", inline: "-e --eval -p --print", module: "-r --require --preload --import", sub: "run x test exec",
			quiet: "-v --version -h --help"},
	}
}

// interpreter finds a family by a program's name: python3.11 is python3.
func interpreter(name string) (runtime, bool) {
	bare := strings.TrimRight(name, "0123456789.-")
	for _, r := range runtimes() {
		if names := strings.Fields(r.names); slices.Contains(names, name) || bare != "" && slices.Contains(names, bare) {
			return r, true
		}
	}
	return runtime{}, false
}

func has(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// read goes through the arguments of an interpreter; false is nothing to read.
func (r *runtime) read(args []Word, t *Text) bool {
	unknown := func(why, hint string) bool {
		t.Why, t.Hint = why, hint
		return true
	}
	for i := 0; i < len(args); i++ {
		w := args[i]
		if !w.Known {
			return unknown("what it runs is not in the text", "write the source out")
		}
		name, value, joined := strings.Cut(w.Text, "=")
		next := func() (Word, bool) {
			if joined && strings.HasPrefix(name, "--") {
				return Word{value, true}, true
			}
			if i++; i < len(args) {
				return args[i], true
			}
			return Word{}, false
		}
		switch {
		case w.Text == "-":
			t.Stdin = true
			return true
		case has(r.quiet, w.Text):
			return len(t.Imports) > 0
		case r.sub != "" && has(r.sub, w.Text):
			if w.Text == "eval" {
				return r.denoEval(args[i+1:], t)
			}
			return unknown("it runs a file that is inside", "hand the file over: caisson run FILE")
		case has(r.inline, name):
			return t.source(next())
		case has(r.module, name):
			m, ok := next()
			if !ok || !m.Known {
				return unknown("which module it loads is not in the text", "write its name out")
			}
			t.Imports = append(t.Imports, moduleName(m.Text))
		case has(r.valued, name):
			next()
		case w.Text == "--":
			if i+1 < len(args) {
				return unknown("it runs a file that is inside", "hand the file over: caisson run FILE")
			}
		case strings.HasPrefix(w.Text, "-") && r.module1 && !strings.HasPrefix(w.Text, "--"):
			if done, ok := r.cluster(args, &i, t); done {
				return ok
			}
		case strings.HasPrefix(w.Text, "-"):
		default:
			return unknown("it runs a file that is inside", "hand the file over: caisson run FILE")
		}
	}
	t.Stdin = true
	return true
}

// source is the value of an option that takes source.
func (t *Text) source(w Word, ok bool) bool {
	switch {
	case !ok:
		return false // the interpreter says so
	case !w.Known:
		t.Why, t.Hint = "what it runs is not in the text", "write the source out"
	default:
		t.Source, t.Known = w.Text, true
	}
	return true
}

// cluster reads Python's short options, which may stand together: -uc CODE, -mMOD.
func (r *runtime) cluster(args []Word, i *int, t *Text) (done, ok bool) {
	letters := args[*i].Text[1:]
	for j, c := range letters {
		rest := letters[j+1:]
		value := func() (Word, bool) {
			if rest != "" {
				return Word{rest, true}, true
			}
			if *i++; *i < len(args) {
				return args[*i], true
			}
			return Word{}, false
		}
		switch c {
		case 'c':
			return true, t.source(value())
		case 'm':
			w, given := value()
			switch {
			case !given:
				return true, false
			case !w.Known:
				t.Why, t.Hint = "which module it runs is not in the text", "write its name out"
			default:
				t.Imports, t.Known = append(t.Imports, w.Text), true
			}
			return true, true
		case 'W', 'X':
			value()
			return false, false
		case 'V', 'h', '?':
			return true, false
		}
	}
	return false, false
}

// denoEval: deno eval [options] CODE.
func (r *runtime) denoEval(args []Word, t *Text) bool {
	for _, w := range args {
		if !w.Known || !strings.HasPrefix(w.Text, "-") {
			return t.source(w, true)
		}
	}
	return false
}
