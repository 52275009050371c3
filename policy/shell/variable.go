// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assign judges NAME=VALUE.
func (s *scope) assign(as *syntax.Assign, exported bool) Variable {
	at := s.at(as.Pos())
	if as.Name == nil {
		w := s.word(as.Value)
		s.refuse(at, "write the name out", "which variable %s sets cannot be told from the text", w.Text)
		return Variable{}
	}
	if as.Index != nil {
		s.subscript(as.Index)
	}
	if as.Index != nil || as.Array != nil {
		s.isList(as.Name.Value)
	}
	v := Variable{Name: as.Name.Value, Value: s.word(as.Value)}
	if as.Value == nil {
		v.Value = Word{Static: as.Array == nil}
	}
	if as.Array != nil {
		if after := int(as.Array.Rparen.Offset()) + 1; after < len(s.text) && strings.IndexByte(" \t\n;&|<>)`", s.text[after]) < 0 {
			s.refuse(s.at(as.Array.Rparen), "leave a blank after it", "shells differ in what follows a list")
		}
		for _, e := range as.Array.Elems {
			if e.Index != nil {
				s.subscript(e.Index)
			}
			s.word(e.Value)
		}
	}
	if as.Append {
		v.Value.Static = false
	}
	s.assigned(v.Name, v.Value, at, exported)
	return v
}

// assigned judges that a variable gets a value; exported says that programs
// see it. One that is not exported may be in the environment already, so what
// steers programs is refused either way.
func (s *scope) assigned(name string, value Word, at Pos, exported bool) {
	if integer(name) && !(value.Static && digits(value.Text)) {
		s.refuse(at, "give it a number", "%s holds a number, and what is to become one may hold a command: x[$(…)]", name)
		return
	}
	if name == "" || harmlessVariable(name) || harmlessValue(name, value) {
		return
	}
	if steers(name) || exported {
		hint := "name it in the policy: commands: {env: [" + name + "]}"
		if neverSet(name) {
			hint = "leave it as it is"
		}
		s.script.Variables = append(s.script.Variables, SetVariable{Name: name, At: at, Never: neverSet(name), Hint: hint})
	}
}

// integer: variables of bash's own whose new value it reads as a sum.
func integer(name string) bool {
	switch name {
	case "RANDOM", "SRANDOM", "OPTIND", "HISTCMD", "SECONDS", "LINENO", "BASHPID", "BASH_SUBSHELL", "EPOCHSECONDS", "EPOCHREALTIME", "SHLVL", "FUNCNEST",
		"HISTSIZE", "HISTFILESIZE", "BASH_ARGV0", "DIRSTACK", "GROUPS", "UID", "EUID", "PPID":
		return true
	}
	return false
}

// SetVariable is a variable that a line sets and that may steer what programs
// do. A policy that does not name it refuses; where Never is set, always.
type SetVariable struct {
	Name  string
	At    Pos
	Never bool
	Hint  string
}

// harmlessVariable: variables that programs take as text.
func harmlessVariable(name string) bool {
	switch name {
	case "CI", "DEBUG", "VERBOSE", "V", "NODE_ENV", "NODE_NO_WARNINGS", "RUST_LOG", "RUST_BACKTRACE", "TZ", "TERM", "NO_COLOR", "FORCE_COLOR",
		"CLICOLOR", "COLUMNS", "LINES", "GOOS", "GOARCH", "GOARM", "GOAMD64", "CGO_ENABLED", "GO111MODULE", "PYTHONUNBUFFERED",
		"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "DEBIAN_FRONTEND", "PORT", "HOST", "LOG_LEVEL",
		"SOURCE_DATE_EPOCH", "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "APP_ENV", "RAILS_ENV", "RACK_ENV", "FLASK_ENV", "DJANGO_DEBUG",
		"OPTIND", "OPTARG", "REPLY", "TESTING", "HUSKY":
		return true
	}
	return strings.HasPrefix(name, "GIT_AUTHOR_") || strings.HasPrefix(name, "GIT_COMMITTER_")
}

// harmlessValue: variables that steer, with values that steer nowhere.
func harmlessValue(name string, v Word) bool {
	if !v.Static {
		return false
	}
	switch {
	case name == "PAGER" || name == "GIT_PAGER" || name == "MANPAGER" || name == "SYSTEMD_PAGER":
		return v.Text == "" || v.Text == "cat"
	case name == "EDITOR" || name == "GIT_EDITOR" || name == "GIT_SEQUENCE_EDITOR":
		return v.Text == ":" || v.Text == "true"
	case name == "LANG" || name == "LC_ALL" || name == "LC_CTYPE" || name == "LC_COLLATE" || name == "LANGUAGE":
		// Shells cut words at what the locale calls a blank.
		return v.Text == "" || v.Text == "C" || v.Text == "POSIX" || strings.HasSuffix(v.Text, ".UTF-8") || strings.HasSuffix(v.Text, ".utf8")
	case name == "IFS":
		return true // what it cuts is unknown to us in any case
	case name == "PYTHONPATH":
		return v.Text == "." || v.Text != "" && v.Text[0] != '/' && !strings.Contains(v.Text, "..") && !strings.Contains(v.Text, ":")
	case name == "PS1" || name == "PS2" || name == "PS4":
		return !strings.ContainsAny(v.Text, "$`\\")
	}
	return false
}

// neverSet: variables that change what the shell itself starts; the analysis
// is wrong with them.
func neverSet(name string) bool {
	switch name {
	case "PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "SHELL", "HOME", "CDPATH",
		"BASH_ALIASES", "BASH_CMDS", "BASH_LOADABLES_PATH", "BASH_XTRACEFD", "EXECIGNORE", "POSIXLY_CORRECT", "LANG", "LANGUAGE", "GLOBIGNORE",
		"BASH_COMPAT", "histchars", "TMOUT", "FCEDIT":
		return true
	}
	for _, p := range []string{"LD_", "LC_", "DYLD_", "GLIBC_", "BASH_FUNC_", "COMP_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// steers says of a variable that is not exported whether programs may look at
// it if it is in the environment: names by their form, because the list of
// programs is open. Shell variables are lower case, by habit.
func steers(name string) bool {
	if neverSet(name) {
		return true
	}
	for _, p := range []string{
		"GIT_", "PYTHON", "NODE_", "NPM_", "npm_config_", "PERL", "RUBY", "GEM_", "BUNDLE_", "JAVA_", "_JAVA", "JDK_", "MAKE", "GNUMAKE", "GO",
		"CGO_", "RUST", "CARGO_", "TAR_", "LESS", "MAN", "PIP_", "PYTEST_", "PHP", "LUA_", "R_", "VIM", "EX", "EMACS", "SSH_", "SUDO_", "SSL_",
		"OPENSSL_", "CURL_", "WGET", "DENO_", "BUN_", "UV_", "DOCKER_", "KUBE", "AWS_", "XDG_", "PKG_CONFIG", "GCC_", "MALLOC_", "TERMINFO",
		"TERMCAP", "LOCPATH", "GCONV_PATH", "NLSPATH", "HOSTALIASES", "RES_", "GTK_", "QT_", "RIPGREP_", "FZF_", "BAT_", "JUPYTER", "COVERAGE_",
	} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	for _, p := range []string{"PAGER", "EDITOR", "VISUAL", "BROWSER", "_COMMAND", "_SSH", "_RSH", "_OPTS", "_OPTIONS", "FLAGS", "_CONFIG", "_WRAPPER", "_PRELOAD", "CLASSPATH", "ASKPASS"} {
		if strings.HasSuffix(name, p) {
			return true
		}
	}
	switch name {
	case "CC", "CXX", "CPP", "AR", "AS", "LD", "NM", "STRIP", "LINKER", "DISPLAY", "TMPDIR":
		return true
	}
	return false
}

// bash reads what declare and its like give to a list as text, once more, where it
// begins with a parenthesis: with x='($(id))', declare -a y="$x" runs id. Whether y is
// a list is known at the end only.

// readAsList judges the value that declare or its like gives to a variable; list says
// that an option makes it a list.
func (s *scope) readAsList(v Variable, at Pos, list bool) {
	begins := v.Value.Prefix
	if v.Value.Static {
		begins = v.Value.Text
	}
	switch {
	case strings.HasPrefix(begins, "("), list && !v.Value.Static && begins == "":
		s.refuse(at, "write the list without quotes: "+v.Name+"=(…)", "the value of %s is read as a list, and may hold a command: ($(…))", v.Name)
	case !v.Value.Static && begins == "":
		s.texts = append(s.texts, declaredText{v.Name, at})
	}
}

// declaredText is a variable to which declare or its like gives a text that is not known.
type declaredText struct {
	name string
	at   Pos
}

// isList notes that a variable is a list, at some time.
func (s *scope) isList(name string) {
	if s.listed == nil {
		s.listed = map[string]bool{}
	}
	s.listed[name] = true
}

// lists notes the names that a builtin may make lists of.
func (s *scope) lists(words []Word) {
	for _, w := range words[1:] {
		s.isList(w.Text)
	}
}

// doneLists refuses texts that are given to lists.
func (a *analyser) doneLists() {
	for _, t := range a.texts {
		if a.listed[t.name] || shellSets(t.name) {
			a.refuse(t.at, "give the list another name", "the value of %s is read as a list, and may hold a command: ($(…))", t.name)
		}
	}
}
