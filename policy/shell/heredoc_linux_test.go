// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"errors"
	"flag"
	"hash/maphash"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	hereLines = flag.Int("heredoc", 4000, "lines that TestHereDocuments makes up")
	hereSeed  = flag.Uint64("heredoc.seed", 1, "where TestHereDocuments begins")
)

// The grammar of lines with here-documents. It is small on purpose: the shells say what
// is right.
var (
	hereDelimiters = []string{"E", "E", "'E'", "'E'", "E", "'E'", "'E'", "E", `"E"`, `\E`, `"E$F"`, `"E\F"`, "E\\\nF", `E"F"`, "'E F'", "$E", "E'", "-E", " E", "E#", "E;", "'E)'", "E=1", "$'E'", `"E` + "`" + `F"`, `E\ F`, "E*", "~E", "E\t", " 'E' ", "E.F", "'E-'", "1", "2", "''", "E\\", "'E\nF'", "E'F'", "-'E'", "- E", "'-E'", "E>o", "E<F", "E|cat", "E&", "E)", "'E')", "F", "'F'", "if", "'$E'", `'E\'`, `'E"'`, "'E`'", "é"}
	hereBodies     = []string{"x", `\`, `E\`, "\t\\", "${x-", "$(echo", "`echo", "$((1+", "}", ")", "`", "))", `"`, "'", "E", "\tE", "E ", "E)", "E`", "E}", `E\\`, " E", "EF", "E F", "E$F", "E`F", "$E", "E;", "E#",
		"touch PWN", "touch PWN", `\E`, `x\`, "", "E\r", "#", "-E", "${x-'", "}'", `${x-"`, `"}`, "$(case x in", "x) echo;; esac)", "$(cat <<F", "F", `\F`,
		"E", "F", "x", "E", "\tE", "echo '", "'", "echo \"", "\"", `echo \"`, "cat <<F", "cat <<'F'", "\tF", "$[1+", "]", "E.F", "1", "$x", `\$x`, `\\`, "x \\\\", "case x in", "x) cat <<F;;", "esac", "E; touch PWN", "#'", "#E", "if true; then", "fi", "(", "done", "$", "$$E", "E\u00a0"}
	hereFrames = [][2]string{{"cat <<%s", ""}, {"cat <<-%s", ""}, {"cat <<%s", ""}, {"echo $(cat <<%s", ")"}, {"echo `cat <<%s", "`"}, {`echo "$(cat <<%s`, `)"`}, {"cat <<F <<%s", ""}, {"{ cat <<%s", "\n}"}, {"cat <<%s; echo y", ""},
		{"cat <<%s | cat", ""}, {"cat <<%s && (", "\n)"}, {"f() { cat <<%s", "\n}; f"}, {"x=$(cat <<%s", ")"}, {"sh -c 'cat <<%s", "'"}, {`bash -c "cat <<%s`, `"`}, {"eval 'cat <<%s", "'"},
		{"echo $(cat <<%s", "\n)"}, {`echo "$(cat <<%s`, "\n)\""}, {"echo `cat <<%s", "\n`"}, {"x=$(echo $(cat <<%s", "\n))"}, {`x="$(cat <<-%s`, "\n)\""}, {"sh <<%s", ""}, {"bash <<-%s", ""}, {"bash -s <<%s", "\nE\nE"}, {"(cat <<%s", "\n)"}, {"(cat <<%s)", ""},
		{"$(cat <<%s)", ""}, {"cat <<%s $(cat <<F", "\n)"}, {"cat <<F $(cat <<%s", "\nF\n)\nF"}, {"cat <<%s \\\n", ""}, {"cat <<%s 'a\nb'", ""}, {"cat <<%s # '", ""}, {"# <<%s", ""}, {"echo a#<<%s", ""}, {"let 1<<%s", ""}, {"echo a[1<<%s]", ""}, {"a[1<<%s]=1", ""}, {"((1<<%s", "))"},
		{"echo $((1<<%s", "))"}, {"echo $[1<<%s", "]"}, {"echo ${x[1<<%s", "]}"}, {"echo ${x:-$(cat <<%s", ")}"}, {"[[ 1 <<%s", "]]"}, {"declare x=1<<%s", ""}, {"x=(<<%s", ")"}, {"x=($(cat <<%s", "))"}, {"echo @(<<%s", ")"}, {"case x in x) cat <<%s", "\n;; esac"}, {"case $(cat <<%s", "\n) in *) ;; esac"},
		{"time cat <<%s", ""}, {"! cat <<%s", ""}, {"cat <(cat <<%s", ")"}, {"cat <<<%s", ""}, {"cat 3<<%s", ""}, {"cat {x}<<%s", ""}, {"cat <<%s >o 2>&1", ""}, {"<<%s cat", ""}, {"<<%s", ""}, {"while true; do break; done <<%s", ""}, {"if cat <<%s", "\nthen :; fi"}, {"for i in 1; do cat <<%s", "\ndone"}, {"echo \"a\nb\" <<%s", ""},
		{"cat < <(cat <<%s", "\n)"}, {"cat <<%s\n", ""}, {"cat <<%s &", ""}, {"cat << %s <<F", "\nF"}, {"cat <<-F <<-%s", ""}, {"cat <<%s <<%s", ""}, {"cat <\\\n<%s", ""}, {"cat <<\\\n-%s", ""}, {"trap 'cat <<%s", "' EXIT"}, {"coproc cat <<%s", ""}, {"f() (cat <<%s", "\n); f"}, {"f() { cat; } <<%s", "\nf"}, {"((cat <<%s); true", ")"}, {"( (cat <<%s", "\n) )"}, {"$((cat <<%s); true", ")"}}
	hereQuotes = [][2]string{{"echo '", "'"}, {`echo "`, `"`}, {"'", "'"}, {"echo ${x-", "}"}, {"cat <<F", "F"}, {"cat <<'F'", "F"}, {"x='", "'"}, {"case x in '", "') esac"}, {"echo $'", "'"}, {"cat <<<'", "'"}}
	hereNames  = []string{"cat", "echo", "true", "sh", "bash", "test"}
)

// hereLine makes a line with here-documents and touch up. Two in three end their
// here-document, most others are refused.
func (g *maker) hereLine() string {
	frame := hereFrames[g.IntN(len(hereFrames))]
	if g.IntN(3) == 0 {
		frame = hereFrames[g.IntN(27)]
	}
	if g.IntN(4) == 0 {
		return g.hereText(frame)
	}
	ends, tame := g.IntN(3) > 0, g.IntN(3) > 0
	body := make([]string, 1+g.IntN(6))
	for i := range body {
		if body[i] = g.one(hereBodies...); tame && g.IntN(4) > 0 {
			body[i] = g.one("x", "'", `"`, "", "#", "$x", "(", "EF", "touch PWN", "E ", "\tx")
		}
	}
	if !slices.Contains(body, "touch PWN") {
		body = slices.Insert(body, g.IntN(len(body)+1), "touch PWN")
	}
	for strings.Contains(frame[0], "%s") {
		delimiter := g.one(hereDelimiters...)
		if tame && g.IntN(4) > 0 {
			delimiter = g.one("E", "'E'")
		}
		if ends {
			body = append(body, strings.Trim(delimiter, "'\" \t"))
		}
		frame[0] = strings.Replace(frame[0], "%s", delimiter, 1)
	}
	return frame[0] + "\n" + strings.Join(body, "\n") + frame[1]
}

// hereText makes a line in which touch is within a text, but where a here-document ends
// in that text.
func (g *maker) hereText(frame [2]string) string {
	delimiter, quote := g.one("E", "'E'", "1"), hereQuotes[g.IntN(len(hereQuotes))]
	line := strings.ReplaceAll(frame[0], "%s", delimiter) + "\n"
	if g.IntN(2) == 0 {
		line += g.one(hereBodies...) + "\n"
	}
	return line + quote[0] + "\n" + strings.Trim(delimiter, "'") + "\ntouch PWN\n" + quote[1] + frame[1]
}

// hidesTouch says that a policy that allows hereNames would let the line through: what
// the line executes then must not be touch.
func hidesTouch(s *Script) bool {
	if !judged(s) {
		return false
	}
	for _, c := range s.Commands {
		if c.Kind == Program && !slices.Contains(hereNames, c.Name()) {
			return false
		}
	}
	return true
}

// touchOracle is a shell that is given many lines at once, and says which of them start
// touch. Each is read by eval, which is faster than -c and reads the same. Only where an
// expansion fails -c goes on with the next line, and eval does not.
type touchOracle struct {
	t     testing.TB
	dir   string
	shell string
}

func newTouchOracle(t testing.TB, shell string) *touchOracle {
	o := &touchOracle{t, t.TempDir(), shell}
	bin := filepath.Join(o.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	stub := "#!/bin/dash\necho \"$LINE_NUMBER\" >>" + filepath.Join(o.dir, "touched") + "\n"
	if err := os.WriteFile(filepath.Join(bin, "touch"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"cat": "/bin/cat", "sh": "/bin/sh", "bash": "/bin/bash"} {
		if err := os.Symlink(at, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if filepath.Base(shell) == "sh" { // bash under that name
		o.shell = filepath.Join(o.dir, "sh")
		if err := os.Symlink("/bin/bash", o.shell); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// manyLines replaces cat, which would take most of the time. A line may end the shell:
// it says which one was the last.
const manyLines = `cat() { :; }
n=0
trap 'echo $n >>last' EXIT
for line do
	export LINE_NUMBER=$n
	case $line in
	*'${'* | *'(('* | *'$['*) "$0" -c "$line" ;;
	*trap*) (eval "$line") ;;
	*) eval "$line" ;;
	esac </dev/null >/dev/null 2>&1
	n=$((n+1))
done`

// touching are the lines that start touch.
func (o *touchOracle) touching(lines []string) (hits []string) {
	for len(lines) > 0 {
		started, last := o.run(lines)
		if last < 0 { // one does not come to an end
			if len(lines) == 1 {
				o.t.Logf("%s does not come to an end with %q", o.shell, lines[0])
				return hits
			}
			hits = append(hits, o.touching(lines[:len(lines)/2])...)
			lines = lines[len(lines)/2:]
			continue
		}
		for _, n := range started {
			if !slices.Contains(hits, lines[n]) {
				hits = append(hits, lines[n])
			}
		}
		lines = lines[min(last+1, len(lines)):]
	}
	return hits
}

// run gives lines to the shell: the numbers of those that start touch, and of the last
// one that was read. It is -1 when the shell does not come to an end.
func (o *touchOracle) run(lines []string) (started []int, last int) {
	record, dir := filepath.Join(o.dir, "touched"), o.t.TempDir()
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.Command(o.shell, append([]string{"-c", manyLines, o.shell}, lines...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + filepath.Join(o.dir, "bin")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	_ = cmd.Wait()                                      // many lines fail
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what is left in the background
	ended := o.numbers(filepath.Join(dir, "last"), len(lines)+1)
	if !late.Stop() || len(ended) == 0 { // killed, by us or for memory
		return nil, -1
	}
	return o.numbers(record, len(lines)), slices.Max(ended)
}

// numbers are those in a file, each smaller than below. No file has none.
func (o *touchOracle) numbers(file string, below int) (all []int) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.t.Fatal(err)
	}
	for _, s := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n >= below {
			o.t.Fatalf("%s has %q", file, s)
		}
		all = append(all, n)
	}
	return all
}

// TestHereDocuments makes lines with here-documents up, and gives to the shells those in
// which the analysis finds no touch: they start none.
func TestHereDocuments(t *testing.T) {
	for _, sh := range []struct {
		path    string
		dialect Dialect
	}{{"/bin/bash", Bash}, {"/bin/dash", POSIX}, {"sh", POSIX}} {
		t.Run(filepath.Base(sh.path), func(t *testing.T) {
			t.Parallel()
			var wait sync.WaitGroup
			var mu sync.Mutex
			allowed, ran := 0, map[uint64]bool{}
			seed := maphash.MakeSeed()
			workers := min(runtime.GOMAXPROCS(0), 4)
			for w := range workers {
				o := newTouchOracle(t, sh.path)
				g := &maker{rand.New(rand.NewPCG(*hereSeed, uint64(w))), sh.dialect, nil}
				wait.Go(func() {
					var lines []string
					flush := func() {
						for _, l := range o.touching(lines) {
							t.Errorf("%q is executed by %s, and touch was not foreseen", l, sh.path)
						}
						lines = lines[:0]
					}
					for n := w; n < *hereLines && !t.Failed(); n += workers {
						l := g.hereLine()
						if !hidesTouch(Line(l, sh.dialect)) {
							continue
						}
						mu.Lock()
						h := maphash.String(seed, l)
						known := ran[h]
						ran[h] = true
						allowed++
						mu.Unlock()
						if known {
							continue
						}
						if lines = append(lines, l); len(lines) == 500 {
							flush()
						}
					}
					flush()
				})
			}
			wait.Wait()
			t.Logf("seed %d: of %d lines %d passed, and %d different ones were run", *hereSeed, *hereLines, allowed, len(ran))
			if len(ran) < *hereLines/200 {
				t.Errorf("only %d different lines were run: too few to prove anything", len(ran))
			}
		})
	}
}

// TestTouchOracleBites: the oracle sees what shells start, and where they differ.
func TestTouchOracleBites(t *testing.T) {
	for shell, want := range map[string][]string{
		"/bin/bash": {"touch PWN", "cat <<E\nx\n\\\nE\ntouch PWN\nE", "cat <<E\n${x-\nE\ntouch PWN\n}\nE", "echo $(cat <<E\nhi\nE)\ntouch PWN\nE\n)", "sh -c 'touch x'"},
		"/bin/dash": {"touch PWN", "cat <<E\nx\n\\\nE\ntouch PWN\nE", "sh -c 'touch x'"},
	} {
		o := newTouchOracle(t, shell)
		got := o.touching(append([]string{"cat <<E\ntouch PWN\nE", "echo touch PWN"}, want...))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", shell, got)
		}
	}
}
