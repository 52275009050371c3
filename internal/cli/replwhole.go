// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/caisson-run/caisson/interpreter"
)

// keywords are what Tab completes before anything was typed.
var keywords = map[string][]string{
	interpreter.Python:     {"async", "await", "break", "class", "continue", "except", "finally", "for", "from", "global", "import", "lambda", "nonlocal", "pass", "print", "raise", "return", "while", "with", "yield"},
	interpreter.JavaScript: {"async", "await", "break", "catch", "class", "const", "console", "continue", "export", "finally", "for", "function", "import", "let", "return", "throw", "typeof", "while"},
	interpreter.TypeScript: {"async", "await", "catch", "class", "const", "console", "enum", "export", "for", "function", "import", "interface", "let", "return", "type", "typeof", "while"},
	interpreter.Bash:       {"case", "done", "echo", "elif", "else", "esac", "export", "for", "function", "local", "return", "then", "until", "while"},
}

// wholeIn says of the lines of a language whether they are a piece of code. It guesses: an empty
// line runs what was typed in any case.
func wholeIn(language string) func(code string) bool {
	switch language {
	case interpreter.Python:
		return wholePython
	case interpreter.JavaScript, interpreter.TypeScript:
		return func(code string) bool { return !scan(code, "//").open }
	case interpreter.Bash:
		return func(code string) bool {
			_, err := syntax.NewParser().Parse(strings.NewReader(code), "")
			return err == nil || !syntax.IsIncomplete(err)
		}
	}
	return func(string) bool { return true }
}

// wholePython says whether lines are a statement: a block goes on until an empty line.
func wholePython(code string) bool {
	s := scan(code, "#")
	return !s.open && !s.block && !strings.HasSuffix(strings.TrimRight(code, "\n"), "\\") && !strings.HasPrefix(code, "@")
}

// scanned is what a look at code finds: that a bracket or a string of several lines is open, and
// that a line ends with a colon.
type scanned struct{ open, block bool }

// scan looks at code line by line. Strings are in ', " and, where comments begin with //, `; in
// Python also in three quotes.
func scan(code, comment string) (s scanned) {
	depth, quote := 0, ""
	for line := range strings.Lines(code) {
		line = strings.TrimSuffix(line, "\n")
		last := byte(0)
		for i := 0; i < len(line); i++ {
			rest := line[i:]
			switch {
			case quote != "" && rest[0] == '\\':
				i++
			case quote != "" && strings.HasPrefix(rest, quote):
				i += len(quote) - 1
				quote, last = "", '"'
			case quote != "":
			case strings.HasPrefix(rest, comment):
				i = len(line)
			default:
				if quote = opens(rest, comment == "#"); quote != "" {
					i += len(quote) - 1
				}
				switch rest[0] {
				case '(', '[', '{':
					depth++
				case ')', ']', '}':
					depth--
				}
				if rest[0] != ' ' && rest[0] != '\t' {
					last = rest[0]
				}
			}
		}
		if len(quote) == 1 && quote != "`" { // it ends with the line, or is a fault
			quote = ""
		}
		s.block = s.block || comment == "#" && depth <= 0 && quote == "" && last == ':'
	}
	s.open = depth > 0 || quote != ""
	return s
}

// opens is the quote that a string begins with here; empty is none.
func opens(rest string, python bool) string {
	switch {
	case python && (strings.HasPrefix(rest, `"""`) || strings.HasPrefix(rest, "'''")):
		return rest[:3]
	case rest[0] == '"' || rest[0] == '\'' || !python && rest[0] == '`':
		return rest[:1]
	}
	return ""
}
