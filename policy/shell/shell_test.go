// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// usual is an allow-list as a team has it for an agent: programs, and for some
// the words that must follow.
var usual = map[string][]string{
	"npm": {"test", "run", "ci", "install"}, "python3": {"-m pytest", "-m mypy", "-m ruff", "-m unittest", "-m venv", "--version"}, "python": {"-m pytest"},
	"cargo": {"build", "test", "check", "clippy", "fmt"}, "go": nil, "git": nil, "ls": nil, "cat": nil, "grep": nil, "sed": nil, "awk": nil, "make": nil,
	"find": nil, "head": nil, "tail": nil, "wc": nil, "sort": nil, "uniq": nil, "cut": nil, "tr": nil, "diff": nil, "mkdir": nil, "cp": nil, "mv": nil,
	"touch": nil, "rm": nil, "chmod": nil, "tar": nil, "rg": nil, "jq": nil, "tee": nil, "which": nil, "date": nil, "sleep": nil, "pytest": nil, "file": nil, "stat": nil,
	"du": nil, "df": nil, "basename": nil, "dirname": nil, "realpath": nil, "seq": nil, "tree": nil, "ps": nil, "uname": nil, "whoami": nil, "ruff": nil, "black": nil, "gofmt": nil,
	"yarn": {"test", "build", "lint"}, "npx": {"tsc", "eslint", "jest", "prettier"}, "node": {"--test"}, "nl": nil, "xxd": nil, "md5sum": nil, "sha256sum": nil,
	"comm": nil, "paste": nil, "column": nil, "id": nil, "hostname": nil, "test": nil, "ln": nil, "patch": nil, "unzip": nil, "gzip": nil, "mktemp": nil, "pip": {"install", "list", "show", "freeze"},
	"staticcheck": nil, "golangci-lint": nil, "mypy": nil, "tsc": nil, "eslint": nil, "od": nil, "cmp": nil, "fold": nil, "rev": nil, "tac": nil, "split": nil, "join": nil, "bc": nil,
	"gcc": nil, "cmake": nil, "less": nil, "fd": nil, "wget": nil, "curl": nil,
}

// denied says why the usual list refuses a line; empty when it passes. Package
// policy is the real one; this is its gist.
func denied(s *Script) string { return deniedBy(s, usual) }

func deniedBy(s *Script, list map[string][]string) string {
	for _, r := range s.Refusals {
		return r.At.String() + ": " + r.Why
	}
	for _, v := range s.Variables {
		return v.At.String() + ": sets " + v.Name
	}
	for _, c := range s.Commands {
		if c.Kind != Program {
			for _, n := range c.Needs {
				return c.At.String() + ": " + n.What
			}
			continue
		}
		args, ok := list[c.Name()]
		if !ok {
			switch c.Name() {
			case "echo", "printf", "true", "false", "pwd":
				continue
			}
			return c.At.String() + ": " + c.Name()
		}
		named := 1
		for _, a := range args {
			want := strings.Fields(a)
			all := len(c.Words) > len(want)
			for i, w := range want {
				all = all && c.Words[i+1].Static && c.Words[i+1].Text == w
			}
			if all {
				named += len(want)
				break
			}
		}
		if args != nil && named == 1 {
			return c.At.String() + ": " + c.Name() + " with these arguments"
		}
		for _, n := range c.Needs {
			if n.To == 0 || n.To > named {
				return c.At.String() + ": " + c.Name() + " " + n.What
			}
		}
	}
	return ""
}

// lines reads a corpus: one line of shell each, \n stands for a line break,
// lines that begin with "## " are headings.
func lines(t testing.TB, name string) []string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if l := s.Text(); l != "" && !strings.HasPrefix(l, "## ") {
			out = append(out, strings.ReplaceAll(l, `⏎`, "\n"))
		}
	}
	return out
}

// TestUsual: what agents run every day passes a usual allow-list.
func TestUsual(t *testing.T) {
	all := lines(t, "testdata/usual.txt")
	for _, l := range all {
		if why := denied(Line(l, Bash)); why != "" {
			t.Errorf("%s\n\trefused: %s", l, why)
		}
	}
	if len(all) < 200 {
		t.Errorf("%d lines are too few", len(all))
	}
}

// TestAttacks: attack cases P01 to P06. Each line holds something that is not
// on the usual list, whose name is evil or which is dangerous by itself.
func TestAttacks(t *testing.T) {
	for _, l := range lines(t, "testdata/attacks.txt") {
		for _, d := range []Dialect{Bash, POSIX} {
			if denied(Line(l, d)) == "" {
				t.Errorf("let through (dialect %d): %s", d, l)
			}
		}
	}
}

// TestStarters: programs that are on no usual list, and start others, or run code. Each
// is listed by its name.
func TestStarters(t *testing.T) {
	for _, l := range lines(t, "testdata/starters.txt") {
		words := strings.Fields(l)
		list := map[string][]string{words[0]: nil}
		if has(subcommands, strings.TrimRight(words[0], "0123456789.")) {
			list[words[0]] = words[1:2]
		}
		if deniedBy(Line(l, Bash), list) == "" {
			t.Errorf("let through: %s", l)
		}
	}
	for _, l := range []string{"apt-cache policy", "apt-mark showauto", "rustc x.rs", "javac X.java", "ninja -C build", "x86_64-linux-gnu-gcc-12 -c x.c", "x86_64-linux-gnu-strings f", "groff -man x", "ctest -C Debug"} {
		if why := deniedBy(Line(l, Bash), map[string][]string{strings.Fields(l)[0]: nil}); why != "" {
			t.Errorf("refused %s: %s", l, why)
		}
	}
}

// TestUnderTheNameOfSh: what bash reads otherwise than dash, where it is sh.
func TestUnderTheNameOfSh(t *testing.T) {
	for _, l := range []string{
		"ls='a[$(evil)]'; ((ls))", "ls='a[$(evil)]'; (\\\n(ls))", `ls $'a\' '; evil; ls '`, `ls $"hello"`, `echo 'a' $"b"`, "cat <<$'E\\'x'\nE\\x\n",
		"time printf -v 'a[$(evil)]' x", "time test -v 'a[$(evil)]'", "exec -a evil ls", "ls >&$x", "ls <\\\n(evil)",
		"x=1; : 'b[$(evil)]'; ls {x[_]}>f", "make test 00</dev/null", "ls 10>f",
	} {
		if denied(Line(l, POSIX)) == "" {
			t.Errorf("let through: %s", l)
		}
	}
	for _, l := range []string{"grep 'foo$' f", `grep foo$ f`, `echo $((1+2))`, `ls \$'a\b'`, `sed 's/a$/b\n/' f`, "( (ls); ls)"} {
		if why := denied(Line(l, POSIX)); why != "" {
			t.Errorf("refused %s: %s", l, why)
		}
	}
}

// TestArgv: the same rules hold for a command that is started without a shell.
func TestArgv(t *testing.T) {
	for _, argv := range [][]string{
		{"bash", "-c", "evil"}, {"bash", "-lc", "evil"}, {"sh"}, {"bash", "script"}, {"env", "X=1", "evil"}, {"python3", "-c", "x"}, {"git", "-c", "a=b", "log"},
		{"find", ".", "-exec", "evil", ";"}, {"xargs", "evil"}, {"bash", "-l"}, {"bash", "-i", "-c", "ls"}, {"bash", "--rcfile", "x", "-c", "ls"}, {"timeout", "5", "evil"},
	} {
		if denied(Argv(argv)) == "" {
			t.Errorf("let through: %q", argv)
		}
	}
	for _, argv := range [][]string{
		{"bash", "-l", "-c", "cd x && ls | head"}, {"ls", "$(evil)"}, {"sh", "-c", "git status"}, {"env", "CI=1", "make"}, {"timeout", "5", "make"}, {"git", "log"},
	} {
		if why := denied(Argv(WithoutLogin(argv))); why != "" {
			t.Errorf("refused %q: %s", argv, why)
		}
	}
}

// TestLoginShells: a login shell is judged by its line where it reads nothing else.
func TestLoginShells(t *testing.T) {
	for _, c := range []struct {
		argv []string
		as   string
	}{
		{[]string{"bash", "-l", "-c", "ls"}, "bash -c ls"},
		{[]string{"/bin/bash", "-lc", "ls"}, "/bin/bash -c ls"},
		{[]string{"bash", "--login", "-e", "-c", "ls"}, "bash -e -c ls"},
		{[]string{"bash", "-c", "ls", "-l"}, ""}, {[]string{"bash", "-c", "ls -l"}, ""}, {[]string{"bash", "--noprofile", "-lc", "ls"}, "bash --noprofile -c ls"}, {[]string{"bash"}, ""},
		{[]string{"bash", "-c", "-el", "ls", "-l"}, "bash -c -e ls -l"}, {[]string{"bash", "-login", "-c", "ls"}, ""}, {[]string{"bash", "--", "-l"}, ""},
		{[]string{"sh", "-lc", "ls"}, ""}, {[]string{"ls", "-l"}, ""}, {nil, ""},
	} {
		if c.as == "" {
			c.as = strings.Join(c.argv, " ")
		}
		if got := strings.Join(WithoutLogin(c.argv), " "); got != c.as {
			t.Errorf("%q becomes %q", c.argv, got)
		}
	}
	for _, argv := range [][]string{{"bash", "-lc", "ls"}, {"bash", "-l", "-c", "ls"}, {"bash", "--login", "-c", "ls"}, {"sh", "-l", "-c", "ls"}, {"dash", "-lc", "ls"}, {"env", "bash", "-lc", "ls"},
		{"env", "bash", "--noprofile", "-lc", "exit"}, {"bash", "--noprofile", "-o", "pipefail", "-l", "-c", "exit"}, {"bash", "-login", "-c", "ls"}} {
		if denied(Argv(argv)) == "" {
			t.Errorf("let through: %q", argv)
		}
	}
}

// TestPlaces: a refusal says where, also within another line.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ line, at, why string }{
		{"ls\n  $x y", "2:3", "which program $x is"},
		{`ls; sh -c '$x'`, "1:11", "which program $x is"},
		{"ls; ls (", "1:5", "cannot be parsed"},
		{"ls\r", "1:3", "cannot be seen, U+000D"},
		{"l\u200bs", "1:2", "cannot be seen, U+200B"},
		{"ls \xff", "1:4", "UTF-8"},
		{"cat <(ls) > /dev/tcp/a/1", "1:13", "connection"},
	} {
		s := Line(c.line, Bash)
		if len(s.Refusals) == 0 || s.Refusals[0].At.String() != c.at || !strings.Contains(s.Refusals[0].Why, c.why) {
			t.Errorf("%q: %+v, want %s at %s", c.line, s.Refusals, c.why, c.at)
		}
	}
}

// TestNestingIsBounded: neither the parser's stack nor ours grows with what a
// hostile line nests.
func TestNestingIsBounded(t *testing.T) {
	for _, unit := range []string{"(", "$(", "`", "{ ", "if ", "${x:-", "((", "$((", "while ", "case x in x) ", `"$(`, "<(", "coproc ", "a[", "f() ", "eval ", "env ", "sh -c ", "! ", "[[ ! ", "x=(", "time ", "<<E "} {
		line := strings.Repeat(unit, MaxLine/len(unit))
		done := make(chan struct{})
		go func() { Line(line, Bash); Line(line, POSIX); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute): // the whole test takes a second or two
			t.Fatalf("%q takes for ever", unit)
		}
	}
	if s := Line(strings.Repeat("( ", maxDepth+1)+"ls"+strings.Repeat(" )", maxDepth+1), Bash); len(s.Refusals) == 0 {
		t.Error("deep nesting passes")
	}
	if s := Line(strings.Repeat("env ", maxDepth+1)+"ls", Bash); len(s.Refusals) == 0 {
		t.Error("deep wrapping passes")
	}
	if s := Line(strings.Repeat("x", MaxLine+1), Bash); len(s.Refusals) == 0 {
		t.Error("a long line passes")
	}
}

// TestManyCommands: the last of 10 000 commands is looked at as the first is.
func TestManyCommands(t *testing.T) {
	for _, sep := range []string{"; ", " && ", " | ", "\n", " || ", " & "} {
		line := strings.Repeat("ls"+sep, 10_000) + "evil"
		s := Line(line, Bash)
		if len(s.Commands) != 10_001 || denied(s) == "" {
			t.Errorf("%q: %d commands, %s", sep, len(s.Commands), denied(s))
		}
	}
	if s := Line("echo "+strings.Repeat("$(ls) ", 10_000)+"$(evil)", Bash); denied(s) == "" {
		t.Error("substitutions: let through")
	}
}

func FuzzLine(f *testing.F) {
	for _, name := range []string{"testdata/usual.txt", "testdata/attacks.txt"} {
		for _, l := range lines(f, name) {
			f.Add(l)
		}
	}
	for _, l := range slices.Concat(numberSeeds, edgeSeeds, syntaxSeeds) {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, d := range []Dialect{Bash, POSIX} {
			s := Line(line, d)
			for _, c := range s.Commands {
				if len(c.Words) == 0 || !c.Words[0].Static {
					t.Fatalf("a command without a name: %+v", c)
				}
				for _, n := range c.Needs {
					if n.From > n.To || n.To > len(c.Words) {
						t.Fatalf("%+v needs words that it has not", c)
					}
				}
				if c.Sub >= len(c.Words) {
					t.Fatalf("%+v: Sub", c)
				}
			}
		}
	})
}

// numberSeeds are lines in which variables hold numbers, or seem to.
var numberSeeds = []string{
	`i=1; echo $((i+1))`, `i="5"; echo $((i))`, `i=-3; [[ $i -eq 1 ]]`, `i='5'; echo $((i))`, `i=${#x}; ((i++))`, `i=$((2)); ls $i`, `i=$(date); echo $((i))`, `i=a; echo $((i))`,
	`for i in 1 2 3; do test "$i" -gt 1; done`, `for i in {1..5}; do test $i -gt 1; done`, `for i in; do echo $((i)); done`, `for i in a; do echo $((i)); done`, "for i in \\\n1 2; do echo $((i)); done",
	"for i in 1 \"$x\"; do echo $((i)); done", `for i do echo $((i)); done`, `((i = 4)); ls $i`, `let i=3; ls $i`, `i=\` + "\n" + `5; ls -$i`, `i+=5; ls $i`, `declare -i i=5; ls $i`, `i=5; read i; ls $i`, `i=5; printf -v i x; ls $i`,
	`i=5; eval ls; ls $i`, `i=5; cat <<E
${i:=x}
E
ls $i`, `i=5; ls >"$(read i)"; ls $i`, `i=5; ls "$(read i)" $i`, `i=5 ls $(read i); ls $i`, `x[i]=5; ls $i`, `0 ${0:A=A}`, `ls ${x[i=2]} $i`, `i=5; x[i]=6; ls`, `{i}>x; i=5; ls $i`, `i=5; exec {i}>x; ls $i`, `RANDOM=5; ls $RANDOM`, `unset RANDOM; ls $RANDOM`,
	"kubectl get po -o name | while read p; do kubectl logs $p; done", `for f in *.go; do gofmt -l "$f" >> out.txt 2>&1 || echo 'bad: '"$f"; done; x=$(date +%s)`,
}

// edgeSeeds are lines that are easily read in the wrong way.
var edgeSeeds = []string{
	"ls a~", "ls ~", "ls ~a", "ls a=~", "ls a:~b", "ls -~", "ls a~~:~", "ls HEAD~1", "a~ b", "", " ", "\n", "\n\n ls \n\n", "ls;", "ls; ", ";ls", "ls;;ls", "ls ; ; ls", "ls\n;", "ls;\nls", "ls &&", "ls && \n ls", "&& ls", "ls &", "ls & ls", "ls || ls", "ls ||| ls", "ls |& ls", "ls | | ls",
	"ls |\nls", "a | b && c | d ; e || f", "ls|wc&&ls;ls", "ls&&&ls", "ls;&ls", "ls &;", "ls\t-l", "'ls'", `"ls" "-l"`, `ls 'a b' "c d" '' ""`, `ls a'b'`, `ls 'a'b`, `ls 'a'"b"`, "ls 'a", "ls 'a\nb'", `ls "$x"`, "ls \"`x`\"", `ls "\$"`,
	"A=b ls", "A+=b", "ls A=b", "'A=b' ls", "=ls", "-x", "--", "1 ls", "if ls", "'if' ls", "ls if", "time ls", "time", "then", "in x", "else", "end", "function f", "export A=b", "declare -x", "let x=1", "coproc ls", "select x", "@test x", "echo @test",
	"command export x", "eval ls '|' cat", "eval 'ls; rm x'", "trap 'rm x' EXIT", "cat x | sh", "echo 'rm x' | bash -s", "xargs rm", "env A=b ls -l", "sh -c 'ls | rm x'", "unset f", "read x", "read -a y", "printf -v x y", "set -e", "test -v x", "kill 1",
	"find . -name 'x*' -exec rm {} +", "git -C x log", "exec ls", ". ./x", "source x", "a/b=c", "ls %1", "ls a@b:c/d", "\"it's\" 'a \"b\"'", "ls \"\t\"", "ls '\t'", "ls\n\n\nrm x;rm y\n", "cd x && git diff --stat HEAD | head -20",
}

// syntaxSeeds have a bit of everything that the grammar has.
var syntaxSeeds = []string{
	"x=1", "x=", "x= ls", "x=;ls", "x=1 y=2 ls z=3", "x+=1", "x[1]=2", "x=[a]", "x=a[b]", "x=~/y", "x=#a", "x=1>y", "x=>y", "x=<(ls)", "x=$y", "x=a$y'b'\"c\"", "x=(a b)", "1x=2", "x=1 if", "x=1 export y", "x={a}>y",
	"ls >x", "ls>x<y", "ls 2>x", "ls 12>x", "ls a2>x", "ls 2 >x", "ls >&2", "ls 2>&1 >x", "ls 2>&1>x", "ls 2>&-", "ls &>x", "ls &>>x", "ls & >x", "ls >|x", "ls <>x", "ls <<<x", "ls <<E\nx\nE", ">x", ">x ls", ">x if", ">x for x in y; do ls; done", "{x}>y", "ls {x}>y", "ls {a,b}>y", "ls >(x)", "ls < (x)", "ls >", "ls > #x", "ls >\n", "ls \"a\"2>x", "ls 2>'a b'$x",
	"ls $x", "ls ${x}", "ls \"$x\"", "ls \"${x}y\"", "ls $x[1]", "ls $1a", "ls ${10}", "ls ${1}", "ls $?$#$@$*$!$$$-", "ls $", "ls \"$\"", "ls $ x", "ls ${x:-y}", "ls ${#x}", "ls ${!x}", "ls $'x'", "ls $\"x\"", "ls $[1]", "ls $((1))", "ls ${x", "ls ${}", "ls $é",
	"ls $(ls)", "ls \"$(ls \"a\" | wc)\"", "ls $(ls; ls) x", "ls $()", "ls $( )", "ls $(ls", "ls $(ls))", "ls )", "(ls)", "ls $((ls))", "ls $( (ls) )", "ls $(\nls\n\nls\n)", "ls $(ls #x\n)", "ls $(ls #x)", "ls $(echo $x#y)", "ls $x#y", "ls 'a'#b", "ls a#b", "ls #a", "#a\nls", "ls;#a", "ls&&#a\nls", "ls |\n#a\n\n ls", "`ls`", "ls \"`ls`\"", "$(ls) x", "$x y", "\"ls\" x", "'if' x", "if'x' y", "i\\f x",
	"for x in a b; do ls; done", "for x in a b\ndo\nls\ndone", "for x in; do ls; done", "for x; do ls; done", "for x do ls; done", "for x\nin a; do ls; done", "for x in a;\n\ndo ls; done", "for x in a; do; ls; done", "for x in a; do ls done", "for x in a; do ls; done>x", "for x in a; do ls; done 2>x <y | wc", "for x in a; do done", "for x in 1>y; do ls; done", "for x in a & do ls; done", "for 1 in a; do ls; done", "for x in a; do ls; done ls", "for x in a; { ls; }", "for ((;;)); do ls; done", "for x in $(ls) \"$y\" *.go; do ls; done; ls", "for x in a;; do ls; done", "for x in a do; do ls; done", "for x in a; do for y in b; do ls; done; done", "for x in a #b\ndo ls; done", "for for in in; do ls; done",
	"while ls; do ls; done", "until ls; do ls; done", "while ls\ndo ls & done", "while; do ls; done", "while ls; do ls; done < x", "while read -r x; do echo \"$x\"; done", "while ls; do ls; fi", "ls | while read x; do ls; done | wc",
	"if ls; then ls; fi", "if ls; then ls; else ls; fi", "if ls; then ls; elif ls; then ls; elif ls; then ls; else ls; fi >x", "if ls\nthen ls\nfi", "if ls; then fi", "if ls; then ls; else ls; elif ls; then ls; fi", "if ! ls; then ls; fi", "if [ -f x ]; then ls; fi", "if [[ -f x ]]; then ls; fi", "if ls; then ls; fi; fi", "if ls; then ls; fi fi", "if; then ls; fi", "then", "done", "fi", "else ls", "do ls",
	"ls a\\ b \\; x", "ls a\\\nb", "ls \"a\\\"b\"", "ls \"a\\\nb\"", "ls 'a\\\nb' c", "ls \"a\\\\\"", "ls a\\\\", "find . -name '*.go' -exec rm {} \\;", "ls \"a\nb\" c; ls", "ls 'a\n\nb' c; ls", "ls [a-z]* a*b? ]", "ls [", "[ a = b ]", "ls a[1]", "ls @(a)", "ls a(b)", "f() { ls; }", "f () { ls; }", "ls é 'é' \"é\" é=1", "! ls", "ls !", "ls ! -x", "{ ls; }", "{}", "ls {} }", "}", "a |& b", "a && b || c | d & e; f", "a & b &", "a &; b", "a &| b", "a &! b", "a;| b", "time ls", "let x=1", "case x in x) ls;; esac", "a\n&& b", "a ;\n\n; b",
}

func BenchmarkLine(b *testing.B) {
	var src strings.Builder
	for _, l := range lines(b, "testdata/usual.txt") {
		if !strings.Contains(l, "\n") {
			src.WriteString(l + "\n")
		}
	}
	line := src.String()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		Line(line, Bash)
	}
}

func BenchmarkShort(b *testing.B) {
	const line = "cd src && git diff --stat HEAD~1 | head -20"
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		Line(line, Bash)
	}
}
