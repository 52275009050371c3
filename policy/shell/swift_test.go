// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// sameTree says whether a line is read without the parser; then the tree is the parser's.
func sameTree(t *testing.T, line string, d Dialect) bool {
	t.Helper()
	if p, _ := unreadable(line); p != (Pos{}) {
		return false
	}
	got, nodes := read(line, d)
	if got == nil {
		return false
	}
	defer nodes.free()
	want, err := parse(line, d)
	if err != nil {
		t.Errorf("%q (dialect %d) is read, and the parser says: %v", line, d, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%q (dialect %d):\n%s\nthe parser:\n%s", line, d, shown(got), shown(want))
	}
	return true
}

func shown(f *syntax.File) string {
	var b strings.Builder
	_ = syntax.DebugPrint(&b, f)
	return b.String()
}

// TestSwift: what is read without the parser comes to the tree that it makes.
func TestSwift(t *testing.T) {
	all, swift := swiftLines(t), 0
	for _, l := range all {
		sameTree(t, l, POSIX)
		if sameTree(t, l, Bash) {
			swift++
		}
		bothWays(t, l, Bash)
		bothWays(t, l, POSIX)
	}
	if swift < 900 {
		t.Errorf("only %d of %d lines are read without the parser", swift, len(all))
	}
}

// TestSwiftMade: so it is with lines that nobody has thought of.
func TestSwiftMade(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	swift := 0
	for range 50_000 {
		var b strings.Builder
		for range 1 + r.IntN(14) {
			b.WriteString(swiftTokens[r.IntN(len(swiftTokens))])
		}
		line := strings.ReplaceAll([]string{"@", "@", "for x in a; do @; done", "ls $(@) x", "if ls; then @; fi >x"}[r.IntN(5)], "@", b.String())
		sameTree(t, line, POSIX)
		if sameTree(t, line, Bash) {
			swift++
		}
		if t.Failed() {
			return
		}
	}
	if swift < 2000 {
		t.Errorf("only %d lines are read without the parser", swift)
	}
}

// TestSwiftLater: what is used again for another text has nothing of the one before.
func TestSwiftLater(t *testing.T) {
	long := strings.Repeat("for x in a \"$b\"; do ls $(wc) >y 2>&1 || z=3; done\n", 2000)
	for _, l := range append(swiftLines(t), long, "ls $x", long[:len(long)/4], "ls \"$x\"") {
		before := Line(l, Bash)
		Line(long[:54*9], Bash)
		if after := Line(l, Bash); !reflect.DeepEqual(before, after) {
			t.Errorf("%.100q: %+v, and then %+v", l, before, after)
		}
		sameTree(t, l, Bash)
	}
}

func swiftLines(t testing.TB) []string {
	all := append(lines(t, "testdata/usual.txt"), lines(t, "testdata/attacks.txt")...)
	return append(append(append(all, plainSeeds...), numberSeeds...), swiftSeeds...)
}

func FuzzSwift(f *testing.F) {
	for _, l := range swiftLines(f) {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, line string) {
		sameTree(t, line, Bash)
		sameTree(t, line, POSIX)
	})
}

// swiftSeeds are lines at the edge of what is read without the parser.
var swiftSeeds = []string{
	"x=1", "x=", "x= ls", "x=;ls", "x=1 y=2 ls z=3", "x+=1", "x[1]=2", "x=[a]", "x=a[b]", "x=~/y", "x=#a", "x=1>y", "x=>y", "x=<(ls)", "x=$y", "x=a$y'b'\"c\"", "x=(a b)", "1x=2", "x=1 if", "x=1 export y", "x={a}>y",
	"ls >x", "ls>x<y", "ls 2>x", "ls 12>x", "ls a2>x", "ls 2 >x", "ls >&2", "ls 2>&1 >x", "ls 2>&1>x", "ls 2>&-", "ls &>x", "ls &>>x", "ls & >x", "ls >|x", "ls <>x", "ls <<<x", "ls <<E\nx\nE", ">x", ">x ls", ">x if", ">x for x in y; do ls; done", "{x}>y", "ls {x}>y", "ls {a,b}>y", "ls >(x)", "ls < (x)", "ls >", "ls > #x", "ls >\n", "ls \"a\"2>x", "ls 2>'a b'$x",
	"ls $x", "ls ${x}", "ls \"$x\"", "ls \"${x}y\"", "ls $x[1]", "ls $1a", "ls ${10}", "ls ${1}", "ls $?$#$@$*$!$$$-", "ls $", "ls \"$\"", "ls $ x", "ls ${x:-y}", "ls ${#x}", "ls ${!x}", "ls $'x'", "ls $\"x\"", "ls $[1]", "ls $((1))", "ls ${x", "ls ${}", "ls $é",
	"ls $(ls)", "ls \"$(ls \"a\" | wc)\"", "ls $(ls; ls) x", "ls $()", "ls $( )", "ls $(ls", "ls $(ls))", "ls )", "(ls)", "ls $((ls))", "ls $( (ls) )", "ls $(\nls\n\nls\n)", "ls $(ls #x\n)", "ls $(ls #x)", "ls $(echo $x#y)", "ls $x#y", "ls 'a'#b", "ls a#b", "ls #a", "#a\nls", "ls;#a", "ls&&#a\nls", "ls |\n#a\n\n ls", "`ls`", "ls \"`ls`\"", "$(ls) x", "$x y", "\"ls\" x", "'if' x", "if'x' y", "i\\f x",
	"for x in a b; do ls; done", "for x in a b\ndo\nls\ndone", "for x in; do ls; done", "for x; do ls; done", "for x do ls; done", "for x\nin a; do ls; done", "for x in a;\n\ndo ls; done", "for x in a; do; ls; done", "for x in a; do ls done", "for x in a; do ls; done>x", "for x in a; do ls; done 2>x <y | wc", "for x in a; do done", "for x in 1>y; do ls; done", "for x in a & do ls; done", "for 1 in a; do ls; done", "for x in a; do ls; done ls", "for x in a; { ls; }", "for ((;;)); do ls; done", "for x in $(ls) \"$y\" *.go; do ls; done; ls", "for x in a;; do ls; done", "for x in a do; do ls; done", "for x in a; do for y in b; do ls; done; done", "for x in a #b\ndo ls; done", "for for in in; do ls; done",
	"while ls; do ls; done", "until ls; do ls; done", "while ls\ndo ls & done", "while; do ls; done", "while ls; do ls; done < x", "while read -r x; do echo \"$x\"; done", "while ls; do ls; fi", "ls | while read x; do ls; done | wc",
	"if ls; then ls; fi", "if ls; then ls; else ls; fi", "if ls; then ls; elif ls; then ls; elif ls; then ls; else ls; fi >x", "if ls\nthen ls\nfi", "if ls; then fi", "if ls; then ls; else ls; elif ls; then ls; fi", "if ! ls; then ls; fi", "if [ -f x ]; then ls; fi", "if [[ -f x ]]; then ls; fi", "if ls; then ls; fi; fi", "if ls; then ls; fi fi", "if; then ls; fi", "then", "done", "fi", "else ls", "do ls",
	"ls a\\ b \\; x", "ls a\\\nb", "ls \"a\\\"b\"", "ls \"a\\\nb\"", "ls 'a\\\nb' c", "ls \"a\\\\\"", "ls a\\\\", "find . -name '*.go' -exec rm {} \\;", "ls \"a\nb\" c; ls", "ls 'a\n\nb' c; ls", "ls [a-z]* a*b? ]", "ls [", "[ a = b ]", "ls a[1]", "ls @(a)", "ls a(b)", "f() { ls; }", "f () { ls; }", "ls é 'é' \"é\" é=1", "! ls", "ls !", "ls ! -x", "{ ls; }", "{}", "ls {} }", "}", "a |& b", "a && b || c | d & e; f", "a & b &", "a &; b", "a &| b", "a &! b", "a;| b", "time ls", "let x=1", "case x in x) ls;; esac", "a\n&& b", "a ;\n\n; b",
}

// swiftTokens are pieces that lines are made of.
var swiftTokens = []string{" ", " ", " ", " ", "\n", ";", "; ", " && ", " || ", " | ", " & ", "&", "|", "ls", "a", "x=", "x", "=", "1", "2>", ">", ">>", "<", ">&", "&>", "&>>", "<&", "-", "$x", "${x}", "$1", "$?", "$", "\"", "\"", "'", "'", "$(", ")", "(", "`", "\\", "#", "[", "]", "{", "}", "!", "*", "?", "~", "@", "+", "%", "^", ",", ":", ".", "/", "é", "for ", "x in ", "in ", " do ", "; do ", "; done", "done", "while ", "until ", "if ", "; then ", "then", "; else ", "; elif ", "; fi", "fi", "time ", "export ", "[[", "]]", "((", "))", "<<", "<<<", ">|", "<>", "<(", "case ", "esac", "\t", "function", "()", "{ ", "; }", "echo ", "-l", "\"$x\"", "'a b'", "\"a\"", "$((", "a1>", "12>", "{x}>", "|&", "&!", ";;", ";&", "$'", "$\"", "$[", "=(", "+=", "[1]=", "\\\n", "\\;", "#c\n", "for x in a; do ls; done", "if ls; then ls; fi", "while ls; do ls; done", "$(ls)", "\"$(ls)\"", "x=$(ls) "}
