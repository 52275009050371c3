// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson/interpreter"
)

// bashTalk speaks with an interactive Bash over one socket, its fd 0, which has commands
// one way and answers the other. It is interactive because such a shell alone gives a
// line up at SIGINT and stays. What a cell runs never has the socket: it reads
// /dev/null, and Bash keeps the descriptor that it puts aside from its children.
//
//	agent -> bash  a line that answers "go", reads the code and evaluates it
//	bash -> agent  go
//	agent -> bash  the code, and a line that answers "end" and the status
//	bash -> agent  run, end ID STATUS
type bashTalk struct {
	socket *os.File
	lines  *bufio.Reader
	queue  []*message // of next

	mu   sync.Mutex // held while something is written
	cell string     // that was started last; "" when it has ended
	code string     // which "go" asks for
	last string     // the line that ends the cell; it may run twice
	runs bool       // it has read the code
}

var bashArgv = []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}

// bashHello makes a shell that writes nothing of its own. What ends a cell is one simple
// command, __c_end STATUS ID: after an unclosed quote the parser knows no other for a
// moment. It may run twice.
const bashHello = `PS1= PS2=; unset HISTFILE MAILCHECK TMOUT PROMPT_COMMAND; set +o history +H; __c_f= __c_s=0 __c_n= __c_after=
__c_status() { return "$1"; }
__c_end() {
  if [ "${__c_n-}" = "$2" ]; then
    __c_f=${-//[^euxv]/} __c_s=$1 __c_n=
    set +euxv
    \builtin eval "$__c_after"
  fi
  \builtin printf 'end %s %s\n' "$2" "$__c_s" >&0
}
\builtin printf 'ready %s\n' "$BASH_VERSION" >&0
`

const maxAnswer = 256

// newBashTalk makes the socket. theirs is the shell's fd 0.
func newBashTalk() (t *bashTalk, theirs *os.File, err error) {
	fd, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := syscall.SetNonblock(fd[0], true); err != nil {
		syscall.Close(fd[0])
		syscall.Close(fd[1])
		return nil, nil, err
	}
	s := os.NewFile(uintptr(fd[0]), "shell")
	t = &bashTalk{socket: s, lines: bufio.NewReaderSize(s, maxAnswer)}
	return t, os.NewFile(uintptr(fd[1]), "shell"), t.write(bashHello)
}

func (t *bashTalk) write(s string) error {
	_, err := t.socket.WriteString(s)
	return err
}

func (t *bashTalk) close()     { t.socket.Close() }
func (t *bashTalk) more() bool { return len(t.queue) > 0 }

func (t *bashTalk) start(c *command) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cell, t.runs = c.ID, false
	before, after, err := bashPlace(c)
	if err == nil && strings.Contains(c.Code, "\x00") {
		err = fmt.Errorf("the code has a NUL byte, which no shell can read")
	}
	code := c.Code
	if err != nil {
		code = "\\builtin printf '%s\\n' " + bashQuote("bash: "+err.Error()) + " >&2; __c_status 2"
	}
	t.code = code
	t.last = "__c_end \"$?\" " + c.ID + " 2>/dev/null\n"
	// The flags of the shell are those of cells, and not of these lines.
	return t.write("\\builtin printf 'go\\n' >&0; LC_ALL=C IFS= \\builtin read -r -N " + strconv.Itoa(len(code)) + " __c_code <&0; " +
		"__c_after=" + bashQuote(after) + " __c_n=" + c.ID + "; \\builtin printf 'run\\n' >&0; " + before + "__c_status \"$__c_s\"; \\builtin eval \"${__c_f:+set -$__c_f;}$__c_code\" </dev/null" + closed(before) + "\n")
}

// closed ends the condition that before begins.
func closed(before string) string {
	if before == "" {
		return ""
	}
	return "; else __c_status 1; fi"
}

// bashName is a name that a variable of a shell can have.
var bashName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// bashPlace sets a cell's variables and directory, and restores what was before.
func bashPlace(c *command) (before, after string, err error) {
	if len(c.Env) == 0 && c.Dir == "" {
		return "", "", nil
	}
	var b, a strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if !bashName().MatchString(name) || strings.HasPrefix(name, "__c_") {
			return "", "", fmt.Errorf("%q cannot be a variable of a shell", name)
		}
		fmt.Fprintf(&b, "__c_h_%[1]s=${%[1]s+x} __c_v_%[1]s=${%[1]s-}; export %[1]s=%[2]s; ", name, bashQuote(c.Env[name]))
		fmt.Fprintf(&a, "if [ \"${__c_h_%[1]s+x}\" ]; then if [ \"$__c_h_%[1]s\" ]; then export %[1]s=\"$__c_v_%[1]s\"; else unset %[1]s; fi; "+
			"unset __c_h_%[1]s __c_v_%[1]s; fi; ", name)
	}
	if c.Dir == "" {
		return b.String() + "if :; then ", a.String(), nil
	}
	fmt.Fprintf(&b, "__c_dir=$PWD; if \\builtin cd -- %s; then ", bashQuote(c.Dir))
	a.WriteString("if [ \"${__c_dir+x}\" ]; then \\builtin cd -- \"$__c_dir\"; unset __c_dir; fi; ")
	return b.String(), a.String(), nil
}

// bashQuote is s as one word.
func bashQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// begun says whether the shell has read the code: one that still does would take the rest of
// it for commands. That it has may be heard after what the code writes.
func (t *bashTalk) begun(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cell == id && t.runs
}

// interrupt says whether the shell may have its signal.
func (t *bashTalk) interrupt(id string) bool { return t.begun(id) }

// interrupted has the cell end once more: the signal may have come when it had ended, and
// taken the line that says so.
func (t *bashTalk) interrupted(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cell == id && t.runs {
		t.write("\n" + t.last)
	}
}

func (t *bashTalk) reseed(seed string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, _ := strconv.ParseUint(seed[:min(len(seed), 8)], 16, 32)
	return t.write("RANDOM=" + strconv.FormatUint(n%32768, 10) + "\n")
}

func (t *bashTalk) next() (*message, error) {
	for len(t.queue) == 0 {
		line, err := readLine(t.lines, maxAnswer)
		if err != nil {
			return nil, err
		}
		if err := t.answer(strings.Fields(string(line))); err != nil {
			return nil, err
		}
	}
	m := t.queue[0]
	t.queue = t.queue[1:]
	return m, nil
}

// answer takes what the shell says.
func (t *bashTalk) answer(words []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(words) == 2 && words[0] == "ready":
		t.queue = append(t.queue, &message{ready: words[1]})
	case len(words) == 1 && words[0] == "go" && !t.runs:
		return t.write(t.code)
	case len(words) == 1 && words[0] == "run" && !t.runs:
		t.runs = true
		return t.write(t.last)
	case len(words) == 3 && words[0] == "end":
		if words[1] != t.cell || !t.runs {
			return nil // said twice
		}
		t.runs, t.cell = false, ""
		status, err := strconv.ParseUint(words[2], 10, 8)
		if err != nil {
			return fmt.Errorf("%w: a status is no number", errProtocol)
		}
		end := &interpreter.Ending{Status: interpreter.Done}
		if status != 0 {
			end.Status = interpreter.Failed
			value := strconv.FormatUint(status, 10)
			t.queue = append(t.queue, &message{id: words[1], event: &interpreter.Event{Type: interpreter.Failure, Error: &interpreter.Error{
				Name: "ExitCode", Value: value, Traceback: "ExitCode: " + value,
			}}})
		}
		t.queue = append(t.queue, &message{id: words[1], event: &interpreter.Event{Type: interpreter.End, End: end}})
	default:
		return fmt.Errorf("%w: the shell answers something else", errProtocol)
	}
	return nil
}
