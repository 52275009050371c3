// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	oracleLines = flag.Int("oracle", 200, "lines that TestOracle makes up for each shell")
	oracleSeed  = flag.Uint64("oracle.seed", 1, "where TestOracle begins")
)

// oracle is a real shell whose programs only write down how they were called.
type oracle struct {
	t     *testing.T
	dir   string
	shell string
}

// stubNames are programs that exist for the shell; rm and curl do nothing.
var stubNames = []string{"a", "b", "c", "ls", "rm", "curl", "git", "python3", "grep", "make", "evil", "go", "npm", "tar", "jq", "rg", "cp", "tee", "sort", "tr", "wc"}

// The real ones, which start others.
var realNames = []string{"env", "xargs", "find", "nice", "nohup", "timeout", "bash", "sh", "sed", "awk", "cat", "seq", "stdbuf", "echo", "printf", "test", "true", "head", "touch", "dash"}

func newOracle(t *testing.T, shell string) *oracle {
	o := &oracle{t: t, dir: t.TempDir(), shell: shell}
	for _, d := range []string{filepath.Dir(o.dir), o.dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(o.dir, "bin")
	work := filepath.Join(o.dir, "work")
	for _, d := range []string{bin, work} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(work, 0o777); err != nil {
		t.Fatal(err)
	}
	// One write for one call: others write meanwhile.
	stub := "#!/bin/dash\ns=\nfor x in \"${0##*/}\" \"$@\"; do s=\"$s$x\036\"; done\nprintf '%s\\035' \"$s\" >>" + o.dir + "/ran\necho 'x[$(rm out)]'\n"
	for _, n := range stubNames {
		if err := os.WriteFile(filepath.Join(bin, n), []byte(stub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range realNames {
		at, err := exec.LookPath(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(bin, n)); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// run gives line to the shell, as a user without rights and with small limits,
// and returns how the stubs were called.
func (o *oracle) run(line string) [][]string {
	record := filepath.Join(o.dir, "ran")
	if err := os.WriteFile(record, nil, 0o666); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Chmod(record, 0o666); err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", `ulimit -u 200 -t 2 -f 1000; exec "$1" -c "$2"`, "x", o.shell, line)
	cmd.Dir = filepath.Join(o.dir, "work")
	cmd.Env = []string{"PATH=" + filepath.Join(o.dir, "bin"), "LANG=C.UTF-8", "HOME=" + cmd.Dir}
	cmd.Stdout = io.Discard // waits for what runs in the background
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 61834, Gid: 61834}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	_ = cmd.Run() // most made-up lines fail in some place
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	out, err := os.ReadFile(record)
	if err != nil {
		o.t.Fatal(err)
	}
	var calls [][]string
	for _, c := range bytes.Split(out, []byte{0o35}) {
		if words := strings.Split(string(c), "\x1e"); len(words) > 1 {
			calls = append(calls, words[:len(words)-1])
		}
	}
	return calls
}

// judged says that a policy that allows every program by name would let the
// line through.
func judged(s *Script) bool {
	if len(s.Refusals) > 0 || len(s.Variables) > 0 {
		return false
	}
	for _, c := range s.Commands {
		if len(c.Needs) > 0 {
			return false
		}
	}
	return true
}

// foresaw says that one of the commands is the call.
func foresaw(s *Script, call []string) bool {
	for _, c := range s.Commands {
		if c.Kind != Builtin && Base(c.Words[0].Text) == call[0] && fits(c.Words[1:], call[1:]) {
			return true
		}
	}
	return false
}

func fits(words []Word, args []string) bool {
	if len(words) == 0 {
		return len(args) == 0
	}
	w := words[0]
	if w.Static {
		return len(args) > 0 && args[0] == w.Text && fits(words[1:], args[1:])
	}
	for n := 0; n <= len(args); n++ { // an unknown word is any number of words
		if fits(words[1:], args[n:]) {
			return true
		}
		if n < len(args) && !w.Split && !strings.HasPrefix(args[n], w.Prefix) {
			return false
		}
	}
	return false
}

// TestOracle runs lines in a real shell: what it executes, the analysis had
// among its commands. Lines that a policy would not let through are not run.
func TestOracle(t *testing.T) {
	corpus := append(lines(t, "testdata/attacks.txt"), lines(t, "testdata/usual.txt")...)
	for _, sh := range []struct {
		path    string
		dialect Dialect
	}{{"/bin/bash", Bash}, {"/bin/dash", POSIX}, {"sh", POSIX}} {
		t.Run(filepath.Base(sh.path), func(t *testing.T) {
			t.Parallel()
			o := newOracle(t, sh.path)
			if sh.path == "sh" { // bash under that name
				o.shell = filepath.Join(o.dir, "sh")
				if err := os.Symlink("/bin/bash", o.shell); err != nil {
					t.Fatal(err)
				}
			}
			g := &maker{rand.New(rand.NewPCG(*oracleSeed, uint64(len(sh.path)))), sh.dialect, corpus}
			ran, calls := 0, 0
			for i := range *oracleLines {
				line := g.line()
				switch i % 4 {
				case 1, 3:
					line = g.spoil(line)
				case 2:
					line = g.spliced()
				}
				s := Line(line, sh.dialect)
				if !judged(s) {
					continue
				}
				ran++
				for _, call := range o.run(line) {
					calls++
					if !foresaw(s, call) {
						t.Errorf("%q was executed and not foreseen\n%s", call, line)
					}
				}
			}
			t.Logf("of %d lines %d were judged and run, with %d calls", *oracleLines, ran, calls)
			if ran < *oracleLines/10 || calls < ran/4 {
				t.Errorf("only %d lines were run and %d programs called: too few to prove anything", ran, calls)
			}
		})
	}
}

// maker makes lines up.
type maker struct {
	*rand.Rand
	dialect Dialect
	corpus  []string // attacks, and usual lines
}

func (g *maker) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *maker) name() string { return g.one("a", "b", "c", "ls", "git status", "grep", "rm", "make") }

func (g *maker) line() string {
	var b strings.Builder
	for i := range 1 + g.IntN(3) {
		if i > 0 {
			b.WriteString(g.one("; ", " && ", " || ", " | ", "\n", " & "))
		}
		b.WriteString(g.statement(3))
	}
	return b.String()
}

func (g *maker) statement(depth int) string {
	if depth == 0 {
		return g.simple(0)
	}
	next := func() string { return g.statement(depth - 1) }
	switch g.IntN(25) {
	case 0:
		return "( " + next() + " )"
	case 1:
		return "{ " + next() + "; }"
	case 2:
		return "if " + next() + "; then " + next() + "; else " + next() + "; fi"
	case 3:
		return "for i in " + g.word(depth) + " 2; do " + next() + "; done"
	case 4:
		return "case " + g.word(depth) + " in (" + g.one("*", "a|x", `"$(a)"`) + ") " + next() + ";; esac"
	case 5:
		return "f() { " + next() + "; }; f " + g.word(depth)
	case 6:
		return "! " + next()
	case 7:
		return "while " + next() + "; do " + next() + "; break; done"
	case 8:
		return "eval " + g.one("'a x'", `"b $(c)"`, "a b", "'a[$(b)]=1'", `'x=$(rm q); a'`)
	case 9:
		return g.one("env ", "nice ", "nohup ", "timeout 3 ", "command ", "exec ", "env A=1 ", "xargs ", "xargs -I{} ", "env -u X ") + g.simple(depth-1)
	case 10:
		return g.one("sh -c ", "bash -c ", "bash -ec ", "sh -c -- ") + g.one("'a x'", `'a "$1"' x y`, `"a $(b)"`, "'a; b' x", "$'a x'", `'$0'`, "b")
	case 11:
		return "find . -maxdepth 0 " + g.one("", "-name '*'") + " -exec " + g.name() + " " + g.one("{}", "x{}y", "") + g.one(" ';'", ` \;`)
	case 12:
		return g.simple(depth-1) + " <<" + g.one("E", "'E'", "-E", `\E`) + "\n" + g.one("x", "$(a)", "`b`", "$x", "\\$(c)", "${x:-$(a)}") + "\nE\n"
	case 13:
		return g.one("x=", "x='a[$(rm x)]' ; y=", "i=1; x=") + g.word(depth) + "; " + g.simple(depth-1)
	case 14:
		return g.one(`echo $((x))`, `echo $((1+2))`, `i=3; echo $((i*2))`, `[ "$x" = a ]`, `[ -v x ]`, `[ $x ]`, `test "$x" "$y"`, `echo ${x:-$(a)}`, `echo "${x#$(b)}"`)
	case 15:
		return g.one("trap 'a x' EXIT", "trap - EXIT", `trap "b" EXIT`) + "; " + next()
	case 16:
		return g.one(`sed -n '1p' /dev/null`, `echo q | sed 's/q/a/e'`, `echo q | sed 's/q/b/;p'`, `awk 'BEGIN{print 1}'`, `awk 'BEGIN{system("a")}'`, `echo x | awk '/x|y/{print}'`)
	case 18:
		return "c() { " + next() + "; }; " + g.one("unset c", "unset -v c", "c=1; unset c", "eval 'unset c'", "(unset c)", "b") + "; c " + g.word(depth)
	case 19:
		return g.started()
	case 20: // a shell that is fed, and what reads before it, or with it
		fed := g.one("bash", "sh", "bash -s x", "env bash")
		lines := g.one("a x", "read v", "head -c 3", "cat", "b") + "\n" + g.one("echo '\nrm x\n'", "a 'q\nb'", "c d", "ls")
		return g.one(fed, "{ "+g.one("read v", "head -n1", "a")+"; "+fed+"; }", "if read v; then "+fed+"; fi", "("+fed+")") + g.one("", " 00</dev/null", " 2>&1") + " <<'E'\n" + lines + "\nE\n"
	case 21:
		return "x=" + g.one("'a[$(rm)]'", "'($(rm))'", "'[$(rm)]=1'", "'1 rm'", "3", "ls") + "; " + g.one("echo z >&$x", `ls >&"$x"`, "a >&'a[$(rm)]'", `declare y="$x"`, "declare -a y=$x",
			`declare -a y; declare y="$x"`, `f() { local y="$1"; }; f "$x"`, `y=(1); typeset y=$x`, "read -p $x v </dev/null", "getopts $x v q", `[ -n $x ]`, `export y="$x"`, `echo "${x}" >&2`, "a 2>&$x")
	case 17:
		if g.dialect == Bash {
			return g.one(`[[ $x -eq 1 ]]`, `[[ -v x ]]`, `x=(1 2); echo ${x[1]}`, `((i=1)); a`, `a <(b)`, `a >(b)`, `a <<<"$(b)"`, `coproc a`, `time a`, `echo ${!x}`,
				`echo @(a)`, `read -r v <<<x; a "$v"`, `declare v=$(a); b`, `a{1,2} x`, `b {x,y}`, `for ((i=0;i<2;i++)); do a; done`, `printf -v q x; a`, `x='a[$(rm y)]'; [[ x -eq 1 ]]`,
				`select i in a; do b; break; done </dev/null`, `function g { a; }; g`, `a &>/dev/null`, `a |& b`, `mapfile -t v < <(a)`, `echo ${x@P}`, `shopt -s extglob; a !(x)`)
		}
		return g.one(`((a) ; b)`, `( (a) )`, "a `b \\`c\\``")
	}
	return g.simple(depth)
}

// started is a program that starts another, with options as its authors read them.
func (g *maker) started() string {
	value := func() string {
		return g.one("1", "1", "x", "{1,rm}", "{x,ls}", "$v", `"$v"`, "*", "''", "-1", "a", "-n", "-Ix")
	}
	with := func(program string, options ...string) string {
		for range g.IntN(4) {
			o := g.one(options...)
			if left, isArg := strings.CutSuffix(o, "V"); isArg {
				o = left + value()
			}
			program += " " + o
		}
		return program + " "
	}
	inner := g.one("a b", "rm x", "ls", "env a", "'{}' x", "a {}")
	line := g.one(
		with("env", "-i", "-u V", "-uV", "-C V", "A=V", "--unset=V", "--unset V", "-", "--", "-v", "-S V", "--spl='rm x'")+inner,
		with("nice", "-n V", "-nV", "-5", "--adjustment=V", "--adj V", "--")+inner,
		with("timeout", "-k V", "-s V", "--foreground", "-v", "--signal=V", "--kill-after V", "--ki V")+value()+" "+inner,
		with("stdbuf", "-o V", "-oL", "-e V", "--output=V", "--error V", "-i0")+inner,
		"echo q | "+with("xargs", "-n V", "-n1", "-I V", "-I{}", "-i", "-iV", "-L V", "-l", "-P V", "-E V", "-d V", "-r", "-t", "-0", "--replace", "--replace=V", "--eof", "--max-lines", "--max-args V", "--max-args=1", "-rt", "-rn1", "-e", "-x", "--delimiter V")+inner,
		with("find", ".", "-maxdepth 0", `"$v"`, "$v", "{.,-exec}", "-name V", "-print", `"$w"`, "-quit")+g.one("", "-exec "+inner+` \;`, "-exec ls {} +", "-exec a + -exec rm ';'", `"$w"`, "-fprintf V x"),
		"echo q | "+with("sed", "-n", "-e p", "-e V", "-l V", "-l5", "-nl 5", "-E", "-s", "-u", "-z", "--expression=p", "--exp p", "--line-length V", "--line-length=V", "-il", "-ne p", "-le p", "-b", "--posix")+g.one("p", "'s/q/rm x/e'", "1e'rm x'", "'s/q/a/;p'", "V")+g.one("", " p", " f", " -e p"),
		"echo q | "+with("awk", "-v x=V", "-vx=1", "-F V", "-F:", "--", "-v V")+g.one("'{print}'", `'BEGIN{system("rm x")}'`, "p"),
		with("bash", "-e", "-o pipefail", "-u", "-eo pipefail", "-oe pipefail", "-oc pipefail", "-norc", "-noprofile", "--norc", "-c", "-ec", "-o V", "-s", "-x", "--posix", "--")+g.one("-c 'a b'", "'a b'", "ls", "'rm x'", "a -c 'rm x'"),
		with("sh", "-e", "-u", "-o errexit", "-eo errexit", "-oc errexit", "-ce", "-c", "-s", "--")+g.one("-c 'a b'", "'a b'", "ls", "'rm x'"),
		with("nohup", "--", "-x")+inner,
	)
	return g.one("v='1 rm'; ", "v=-exec; w=';'; ", "v=1; ", "v='a BEGIN{system(\"rm\")}'; ", "echo rm x >ls; ", "touch ./-v; ", "") + strings.ReplaceAll(line, " V", " "+value())
}

func (g *maker) simple(depth int) string {
	var b strings.Builder
	if g.IntN(8) == 0 {
		b.WriteString(g.one("X=1 ", "LANG=C ", "V=$(a) ", "x=y "))
	}
	b.WriteString(g.one(g.name(), g.name(), g.name(), `"a"`, `\a`, `a""`, "$'a'", `$x`, `"$(a)"`, "l''s", "echo", "cat", "{ls,a}", "/b?n/a", "$'\\x61'", "a\\\n"))
	for range g.IntN(3) {
		b.WriteString(" " + g.word(depth))
	}
	if g.IntN(6) == 0 {
		b.WriteString(g.one(" >o", " 2>&1", " </dev/null", " >>o", " 2>/dev/null", " <&-"))
	}
	return b.String()
}

func (g *maker) word(depth int) string {
	if depth > 0 && g.IntN(4) == 0 {
		in := g.statement(depth - 1)
		return g.one("$("+in+")", `"$(`+in+`)"`, "`a`", `"${x:-$(`+in+`)}"`, "p$("+in+")s")
	}
	return g.one("x", "-f", "'q r'", `"s t"`, "$x", `"$x"`, "*", "?", "~", `\$x`, "$'\\t'", "{1..3}", `"${x:-'$(a)'}"`, "${x:-<(a)}", "$\\\n[y]", "{a,b}", "a=b", "--x=y", "''", `""`, "$1", `"$@"`, "${x}y",
		"[a]", "x#y", "#c", "$((1))", "$'a\\'b'", `"a\"b"`, `'a'\''b'`, "é", "${#x}", "-", "--", "a\\ b", "$", "=", "!", "^x", "%1", "x\\\ny")
}

// tokens are what spliced cuts at: words, and the signs of the shell's grammar.
var tokens = regexp.MustCompile("[A-Za-z0-9_./=-]+|[ \\t]+|[<>&|;(){}$`'\"\\[\\]!]|\\n|[^A-Za-z0-9]")

// spliced begins as one line of the corpus and goes on as another, with a piece of a
// third between, and is sometimes the text of an inner shell.
func (g *maker) spliced() string {
	pick := func() []string { return tokens.FindAllString(g.one(g.corpus...), -1) }
	one, two, three := pick(), pick(), pick()
	from := g.IntN(len(three))
	line := strings.Join(one[:g.IntN(len(one)+1)], "") + strings.Join(three[from:min(len(three), from+g.IntN(4))], "") + strings.Join(two[g.IntN(len(two)):], "")
	switch g.IntN(8) {
	case 0:
		return g.one("x=1; ", "f() { a; }; ", "set -- x y; ", "shopt -s extglob\n", "cd .; ") + line
	case 1:
		return "sh -c '" + strings.ReplaceAll(line, "'", `'\''`) + "'"
	case 2:
		return "cat <<E\n" + line + "\nE\n" + g.simple(1)
	case 3:
		return g.spoil(line)
	}
	return line
}

// spoil changes a line in a few places, as a writer of attacks would.
func (g *maker) spoil(line string) string {
	for range 1 + g.IntN(3) {
		i := 0
		if len(line) > 0 {
			i = g.IntN(len(line))
		}
		j := min(len(line), i+g.IntN(3))
		line = line[:i] + g.one("'", `"`, "`", "$(", ")", "\\", "\n", ";", "&", "|", "<<E\n", "{", "}", "$", "#", " ", "((", "))", "[[", "!", "<", ">", "a ", "$'", "\\\n", "=", "()",
			"E\n", "*", "[", "]", "~", ",", "..", "${", "eval ", "command ", "\t", "&&", ";;", "in ", "do ", "done ", "fi ", "esac ", "then ", "function ") + line[j:]
	}
	return line
}

func TestOracleBites(t *testing.T) {
	o := newOracle(t, "/bin/bash")
	calls := o.run("x=a; $x 'b c'; ls | rm -f q")
	if got := fmt.Sprint(calls); !strings.Contains(got, "[a b c]") || !strings.Contains(got, "[rm -f q]") {
		t.Errorf("the oracle saw %s", got)
	}
	if foresaw(Line("ls", Bash), []string{"rm", "-f", "q"}) || foresaw(Line("a x $y", Bash), []string{"a", "z", "y"}) {
		t.Error("what nobody said was foreseen")
	}
}
