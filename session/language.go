// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// language says how source of one kind is run. A script's path and its
// arguments follow the argv.
type language struct {
	name   string
	also   []string // other names of --lang
	ext    []string // the first one names source that has no file
	interp []string // what a shebang may call, without version
	argv   []string
}

// languages is the table, most used first.
func languages() []language {
	return []language{
		{name: "python", also: []string{"py", "python3"}, ext: []string{".py"}, interp: []string{"python", "python3", "pypy", "pypy3"}, argv: []string{"python3"}},
		{name: "javascript", also: []string{"js", "node"}, ext: []string{".js", ".mjs", ".cjs"}, interp: []string{"node", "nodejs"}, argv: []string{"node"}},
		{name: "typescript", also: []string{"ts"}, ext: []string{".ts", ".mts", ".cts"}, interp: []string{"deno", "tsx", "ts-node", "bun"}, argv: typescript()},
		{name: "bash", ext: []string{".bash"}, interp: []string{"bash"}, argv: []string{"bash"}},
		{name: "sh", also: []string{"shell"}, ext: []string{".sh"}, interp: []string{"sh", "dash", "ash"}, argv: []string{"sh"}},
		{name: "ruby", also: []string{"rb"}, ext: []string{".rb"}, interp: []string{"ruby"}, argv: []string{"ruby"}},
		{name: "perl", also: []string{"pl"}, ext: []string{".pl"}, interp: []string{"perl"}, argv: []string{"perl"}},
		{name: "php", ext: []string{".php"}, interp: []string{"php"}, argv: []string{"php"}},
		{name: "lua", ext: []string{".lua"}, interp: []string{"lua", "luajit"}, argv: []string{"lua"}},
		{name: "r", also: []string{"R", "rscript"}, ext: []string{".R", ".r"}, interp: []string{"Rscript"}, argv: []string{"Rscript"}},
		{name: "julia", also: []string{"jl"}, ext: []string{".jl"}, interp: []string{"julia"}, argv: []string{"julia"}},
		{name: "tcl", ext: []string{".tcl"}, interp: []string{"tclsh"}, argv: []string{"tclsh"}},
		{name: "awk", ext: []string{".awk"}, interp: []string{"awk", "gawk", "mawk"}, argv: []string{"awk", "-f"}},
		{name: "elixir", also: []string{"exs"}, ext: []string{".exs"}, interp: []string{"elixir"}, argv: []string{"elixir"}},
		{name: "groovy", ext: []string{".groovy"}, interp: []string{"groovy"}, argv: []string{"groovy"}},
		{name: "fish", ext: []string{".fish"}, interp: []string{"fish"}, argv: []string{"fish"}},
		{name: "zsh", ext: []string{".zsh"}, interp: []string{"zsh"}, argv: []string{"zsh"}},
	}
}

// typescript asks inside which runtime there is, because only the sandbox
// knows: the first of deno, bun and tsx, else node, which strips types since
// 22.6 (behind a flag until 23.6, which took it and ignores it since; an older one says
// that the flag is bad).
func typescript() []string {
	const pick = `command -v deno >/dev/null && exec deno run "$@"
command -v bun >/dev/null && exec bun "$@"
command -v tsx >/dev/null && exec tsx "$@"
needs="caisson: typescript needs deno, bun, tsx or node 22.6 in the sandbox"
command -v node >/dev/null || { echo "$needs" >&2; exit 127; }
is=$(node --version)
case $is in
v[0-9].* | v1[0-9].* | v2[01].* | v22.[0-5].*) echo "$needs, and node is $is there" >&2; exit 127 ;;
esac
exec node --experimental-strip-types "$@"`
	return []string{"sh", "-c", pick, "typescript"}
}

// Languages lists the names that --lang takes.
func Languages() []string {
	var names []string
	for _, l := range languages() {
		names = append(names, l.name)
	}
	return names
}

// languageNamed finds a language by one of its names.
func languageNamed(name string) (language, error) {
	for _, l := range languages() {
		if l.name == name || slices.Contains(l.also, name) || strings.EqualFold(l.name, name) {
			return l, nil
		}
	}
	return language{}, &sandbox.Error{Op: "language " + sandbox.Quoted(name), Kind: sandbox.ErrInvalid,
		Problem: "caisson does not know it", Hint: "known are " + strings.Join(Languages(), ", ") +
			"; for another one name its interpreter: caisson run --mount FILE -- INTERPRETER FILE"}
}

// languageOf finds a language by a file's name.
func languageOf(name string) (language, bool) {
	ext := path.Ext(name)
	for _, l := range languages() {
		if slices.Contains(l.ext, ext) {
			return l, true
		}
	}
	return language{}, false
}

// Interpreter is the program that runs a call's file or source, as far as the language's
// name or the file's say; empty for a command.
func Interpreter(c *Call) string {
	name, named := c.File, c.FileLanguage
	if c.Source != nil {
		name, named = c.Source.Name, c.Source.Language
	}
	l, ok := languageOf(name)
	if named != "" {
		var err error
		l, err = languageNamed(named)
		ok = err == nil
	}
	if !ok {
		return ""
	}
	return l.argv[0]
}

// shebang reads "#!" of a script as the kernel does: the interpreter, and the
// rest of the line as one argument. env is resolved to what it would look up.
func shebang(code []byte) (argv []string, ok bool) {
	line, found := bytes.CutPrefix(code, []byte("#!"))
	if !found {
		return nil, false
	}
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	if len(line) > 255 { // BINPRM_BUF_SIZE
		return nil, false
	}
	text := strings.TrimSpace(string(line))
	interp, arg, _ := strings.Cut(text, " ")
	arg = strings.TrimSpace(arg)
	if interp == "" {
		return nil, false
	}
	if path.Base(interp) == "env" {
		arg = strings.TrimSpace(strings.TrimPrefix(arg, "-S"))
		argv = strings.Fields(arg)
		return argv, len(argv) > 0
	}
	if arg == "" {
		return []string{interp}, true
	}
	return []string{interp, arg}, true
}

// languageOfInterpreter names the language that an interpreter's path runs;
// python3.11 is python3.
func languageOfInterpreter(interp string) (language, bool) {
	base := path.Base(interp)
	bare := strings.TrimRight(base, "0123456789.-")
	for _, l := range languages() {
		if slices.Contains(l.interp, base) || slices.Contains(l.interp, bare) {
			return l, true
		}
	}
	return language{}, false
}
