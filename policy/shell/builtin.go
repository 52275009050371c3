// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// isBuiltin says that a shell has name inside.
func isBuiltin(name string) bool {
	switch name {
	case ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete", "compopt", "continue",
		"declare", "dirs", "disown", "echo", "enable", "eval", "exec", "exit", "export", "false", "fc", "fg", "getopts", "hash", "help",
		"history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf", "pushd", "pwd", "read", "readarray", "readonly",
		"return", "set", "shift", "shopt", "source", "suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask",
		"unalias", "unset", "wait", "chdir":
		return true
	}
	return false
}

// builtin judges a command that the shell may carry out itself; false says
// that it is a program's name.
func (s *scope) builtin(words []Word, env []Variable, in stdin) bool {
	name := words[0].Text
	if !isBuiltin(name) {
		return false
	}
	c := Command{Words: words, Kind: Builtin, Env: env}
	switch name {
	case "cd", "chdir", ":", "true", "false", "pwd", "echo", "exit", "return", "break", "continue", "shift", "times", "umask", "ulimit", "bg", "fg",
		"disown", "dirs", "pushd", "popd", "type", "caller", "help", "logout", "suspend":
	case "jobs":
		s.noFlags(words, "x", "it starts a program")
	case "printf":
		s.names(words, "v", "")
	case "wait":
		s.names(words, "p", "")
	case "read":
		s.names(words, "a", "dinNptu")
		s.lists(words)
	case "mapfile", "readarray":
		s.lists(words)
		s.noFlags(words, "Cc", "a callback is run")
		s.names(words, "", "dnOsuCc")
	case "getopts":
		for _, w := range words[1:min(2, len(words))] {
			if !w.one() {
				s.refuse(w.At, "quote it", "%s may become a name, too", w.Text)
			}
		}
		if len(words) > 2 {
			s.name(words[2])
		}
	case "unset":
		s.noFlags(words, "fn", "a function that is no more is a program")
		s.names(words, "", "")
		for _, w := range words[1:] {
			if s.removed == nil {
				s.removed = map[string]bool{}
			}
			s.removed[w.Text] = true
		}
	case "export", "readonly", "declare", "typeset", "local":
		// A POSIX parser takes these for calls.
		list := false
		for _, w := range words[1:] {
			s.declared(name, w, list)
			list = list || w.Static && strings.HasPrefix(w.Text, "-") && strings.ContainsAny(w.Text, "aA")
		}
	case "test", "[":
		s.testWords(words[1:])
	case "let":
		for _, w := range words[1:] {
			s.refuse(w.At, "write (( … ))", "let evaluates text")
		}
	case "set":
		s.set(words)
	case "shopt":
		s.shopt(words)
	case "hash":
		s.noFlags(words, "p", "it says where a program is")
	case "eval":
		s.eval(words[1:])
	case "trap":
		s.trap(words[1:])
	case "exec":
		s.exec(&c, in)
		return true
	case "command", "builtin":
		return s.commandBuiltin(&c, in)
	case ".", "source":
		c.need(1, min(2, len(words)), "reads a script file")
	case "kill":
		c.Kind = Program // it reaches other processes: it is to be named
	default: // alias bind compgen complete compopt enable fc history unalias
		s.refuse(words[0].At, "", "%s changes what commands mean, or runs what is not in the text", name)
	}
	s.emit(c)
	return true
}

// name judges a word that names a variable.
func (s *scope) name(w Word) {
	if !w.Static || !syntax.ValidName(w.Text) {
		s.refuse(w.At, "name a variable", "%s is to be a variable's name, and may hold a command: x[$(…)]", w.Text)
		return
	}
	s.assigned(w.Text, Word{}, w.At, false)
}

// names judges a builtin's operands, which are names of variables. Of its
// options, those in named take a name and those in args something else.
// printf and wait have operands that are none.
func (s *scope) names(words []Word, named, args string) {
	operands := words[0].Text != "printf" && words[0].Text != "wait"
	for i := 1; i < len(words); i++ {
		w := words[i]
		if !w.Static && !operands && w.plain() {
			return
		}
		if !w.Static {
			if operands || i == 1 {
				s.refuse(w.At, "write options and names out", "%s may be an option or a name with a command in it: x[$(…)]", w.Text)
			}
			return
		}
		if len(w.Text) < 2 || w.Text[0] != '-' {
			if !operands {
				return
			}
			s.name(w)
			continue
		}
		if w.Text == "--" {
			if !operands {
				return
			}
			continue
		}
		for j := 1; j < len(w.Text); j++ {
			isName := strings.IndexByte(named, w.Text[j]) >= 0
			if !isName && strings.IndexByte(args, w.Text[j]) < 0 {
				continue
			}
			value := Word{Text: w.Text[j+1:], Static: true, At: w.At}
			if value.Text == "" && i+1 < len(words) {
				i++
				value = words[i]
			}
			if !value.one() {
				s.refuse(value.At, "quote it", "%s may become a name with a command in it, too: x[$(…)]", value.Text)
			}
			if isName {
				s.name(value)
			}
			break
		}
	}
}

// noFlags refuses options of a builtin.
func (s *scope) noFlags(words []Word, flags, why string) {
	for _, w := range words[1:] {
		if !w.known() || w.Static && strings.HasPrefix(w.Text, "-") && strings.ContainsAny(w.Text, flags) {
			s.refuse(w.At, "", "%s %s: %s", words[0].Text, w.Text, why)
		}
	}
}

// declare judges declare, export and their like, as bash parses them.
func (s *scope) declare(c *syntax.DeclClause) {
	variant := c.Variant.Value
	exported, list := variant == "export", false
	for _, as := range c.Args {
		if as.Naked && as.Value != nil {
			s.declared(variant, s.word(as.Value), list)
			if w := as.Value.Lit(); strings.HasPrefix(w, "-") {
				exported = exported || strings.Contains(w, "x")
				list = list || strings.ContainsAny(w, "aA")
			}
			continue
		}
		if as.Naked && as.Name != nil {
			if as.Index != nil {
				s.subscript(as.Index)
			}
			if list {
				s.isList(as.Name.Value)
			}
			if !integer(as.Name.Value) { // it gets no value here
				s.assigned(as.Name.Value, Word{}, s.at(as.Pos()), exported)
			}
			continue
		}
		if v := s.assign(as, exported); as.Array == nil {
			s.readAsList(v, s.at(as.Pos()), list)
		}
	}
	s.emit(Command{Words: []Word{{Text: variant, Static: true, At: s.at(c.Pos())}}, Kind: Builtin})
}

// declared judges one word after export, declare and their like: an option, a
// name, or NAME=VALUE.
func (s *scope) declared(variant string, w Word, list bool) {
	name, value, has := strings.Cut(w.Text, "=")
	if !w.Static {
		name, _, has = strings.Cut(w.Prefix, "=")
		if !has || w.Split && s.dialect == POSIX { // dash splits what follows the =
			s.refuse(w.At, "write the name out, and quote the value", "which variable %s sets cannot be told from the text", w.Text)
			return
		}
		s.assigned(name, Word{}, w.At, true)
		_, value, _ := strings.Cut(w.Prefix, "=")
		s.readAsList(Variable{name, Word{Prefix: value}}, w.At, list)
		return
	}
	if strings.HasPrefix(w.Text, "-") || strings.HasPrefix(w.Text, "+") {
		if strings.ContainsAny(w.Text, "nif") && w.Text != "--" {
			s.refuse(w.At, "", "%s %s: the value is read as a name, a sum or a function", variant, w.Text)
		}
		return
	}
	if !syntax.ValidName(name) {
		s.refuse(w.At, "name a variable", "%s is no variable's name", name)
		return
	}
	if list {
		s.isList(name)
	}
	if has {
		s.readAsList(Variable{name, Word{Text: value, Static: true}}, w.At, list)
	}
	if has || !integer(name) {
		s.assigned(name, Word{Text: value, Static: has}, w.At, variant != "local" && variant != "readonly")
	}
}

// testWords judges what follows [: with -v it takes a name, which may hold a
// command. An unknown word may be -v if what follows may be such a name.
func (s *scope) testWords(words []Word) {
	for i, w := range words {
		if !w.one() && !w.plain() {
			s.refuse(w.At, `quote it: "`+w.Text+`"`, "%s may become several words, and among them -v with a command: -v 'x[$(…)]'", w.Text)
			continue
		}
		if i+1 == len(words) {
			break
		}
		next := words[i+1]
		mayBeV := !w.known() || w.Static && (w.Text == "-v" || w.Text == "-R")
		mayHold := !next.Static || strings.Contains(next.Text, "[") // in x[y], what y holds is evaluated
		if mayBeV && mayHold {
			s.refuse(w.At, "", "%s %s may be -v with a command in the name", w.Text, next.Text)
		}
	}
}

// set judges set: options that change how text is read are refused.
func (s *scope) set(words []Word) {
	for i := 1; i < len(words); i++ {
		w := words[i]
		if w.Static && (w.Text == "--" || w.Text == "-" || w.Text == "" || w.Text[0] != '-' && w.Text[0] != '+') || !w.Static && w.plain() {
			return // positional parameters
		}
		if !w.Static {
			s.refuse(w.At, "write set -- "+w.Text, "%s may be an option of the shell", w.Text)
			return
		}
		if strings.Trim(w.Text, "-+euxovnfCETbmh") != "" {
			s.refuse(w.At, "", "set %s changes how the shell reads the text", w.Text)
		}
		if strings.Contains(w.Text, "o") && i+1 < len(words) {
			i++
			s.option(words[i], "pipefail errexit nounset xtrace verbose noexec noglob noclobber errtrace functrace notify monitor hashall")
		}
	}
}

// option refuses an option that is not among the known.
func (s *scope) option(w Word, known string) {
	if !w.Static || !strings.Contains(" "+known+" ", " "+w.Text+" ") {
		s.refuse(w.At, "", "%s changes how the shell reads the text", w.Text)
	}
}

func (s *scope) shopt(words []Word) {
	for _, w := range words[1:] {
		if w.Static && (w.Text == "-s" || w.Text == "-u" || w.Text == "-q" || w.Text == "-p") {
			continue
		}
		s.option(w, "nullglob globstar dotglob extglob failglob nocaseglob nocasematch inherit_errexit globasciiranges")
	}
}

// eval judges the text that the words give.
func (s *scope) eval(words []Word) {
	if len(words) > 0 && words[0].Static && words[0].Text == "--" {
		words = words[1:]
	}
	var text []string
	for _, w := range words {
		if !w.Static {
			s.refuse(w.At, "write the command itself", "what eval executes cannot be told from the text: %s", w.Text)
			return
		}
		text = append(text, w.Text)
	}
	if len(words) > 0 {
		s.line(strings.Join(text, " "), s.dialect, &words[0].At, true)
	}
}

func (s *scope) trap(words []Word) {
	for len(words) > 0 && words[0].Static && (words[0].Text == "-p" || words[0].Text == "-l" || words[0].Text == "--") {
		words = words[1:]
	}
	if len(words) == 0 || words[0].Static && (words[0].Text == "-" || words[0].Text == "") {
		return
	}
	s.eval(words[:1])
}

// exec judges exec: redirects alone, or a program in the shell's place.
func (s *scope) exec(c *Command, in stdin) {
	rest := c.Words[1:]
	for len(rest) > 0 && rest[0].Static && strings.HasPrefix(rest[0].Text, "-") {
		switch flag := rest[0].Text; {
		case flag == "--":
		case strings.Trim(flag, "-c") == "":
		case flag == "-a" && s.dialect == Bash && len(rest) > 1 && rest[1].plain() && rest[1].Static: // -sh is a login shell; busybox starts what is the name
			rest = rest[1:]
		default:
			s.refuse(rest[0].At, "", "exec %s is not judged", flag)
			return
		}
		rest = rest[1:]
	}
	s.emit(*c)
	if len(rest) > 0 {
		s.program(rest, c.Env, in)
	}
}

// commandBuiltin judges command and builtin, which pass functions over.
func (s *scope) commandBuiltin(c *Command, in stdin) bool {
	rest := c.Words[1:]
	for len(rest) > 0 && rest[0].Static && strings.HasPrefix(rest[0].Text, "-") {
		switch {
		case rest[0].Text == "--" || rest[0].Text == "-p":
			rest = rest[1:]
		case c.Words[0].Text == "command" && (rest[0].Text == "-v" || rest[0].Text == "-V"):
			s.emit(*c)
			return true
		default:
			s.refuse(rest[0].At, "", "%s %s is not judged", c.Words[0].Text, rest[0].Text)
			return true
		}
	}
	s.emit(*c)
	if len(rest) > 0 && !(rest[0].Static && s.builtin(rest, c.Env, in)) {
		s.program(rest, c.Env, in)
	}
	return true
}
