// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Programs that start the program that their arguments name.

// wrapper is a program that starts another.
type wrapper struct {
	options
	operands int  // words before the program
	assigns  bool // NAME=VALUE before the program
	named    bool // it does more than starting, and is to be named itself
	shell    bool // without a program it starts a shell
}

func wrappers() map[string]*wrapper {
	digit := "0123456789"
	return map[string]*wrapper{
		"env":  {options: options{flags: "i0v", args: "uC", long: "ignore-environment null debug", longArg: "unset chdir"}, assigns: true},
		"nice": {options: options{flags: digit, args: "n", longArg: "adjustment"}}, "nohup": {},
		"timeout": {options: options{flags: "vfp", args: "ks", long: "foreground preserve-status verbose", longArg: "kill-after signal"}, operands: 1},
		"stdbuf":  {options: options{args: "ioe", longArg: "input output error"}},
		"setsid":  {options: options{flags: "cfw", long: "ctty fork wait"}},
		"ionice":  {options: options{flags: "t", args: "cn", long: "ignore", longArg: "class classdata"}},
		"time":    {options: options{flags: "pavq", args: "fo", long: "portability append verbose quiet", longArg: "format output"}},
		"sudo":    {options: options{flags: "nHSkEPB", args: "ughpCTr", long: "non-interactive set-home stdin preserve-env", longArg: "user group prompt"}, assigns: true, named: true},
		"doas":    {options: options{flags: "n", args: "u"}, named: true},
		"chroot":  {options: options{longArg: "userspec groups", long: "skip-chdir"}, operands: 1, named: true, shell: true},
		"taskset": {options: options{flags: "ac", long: "all-tasks cpu-list"}, operands: 1, named: true},
		"chrt":    {options: options{flags: "bfiro", args: "TPD"}, operands: 1, named: true},
		"busybox": {named: true}, "toybox": {named: true},
		"fakeroot": {named: true, shell: true}, "eatmydata": {named: true},
	}
}

func (w *wrapper) judge(s *scope, c *Command, in stdin) {
	name := c.Name()
	i, strange := w.end(c.Words, 1)
	if strange >= 0 {
		s.refuse(c.Words[strange].At, "leave the option out", "%s %s: what is started then cannot be told", Base(name), c.Words[strange].Text)
		return
	}
	env := slices.Clone(c.Env)
	for ; w.assigns && i < len(c.Words); i++ {
		v, value, has := strings.Cut(c.Words[i].Text, "=")
		if !c.Words[i].Static {
			v, value, has = strings.Cut(c.Words[i].Prefix, "=")
		}
		if !has {
			break
		}
		if !c.Words[i].one() || !syntax.ValidName(v) {
			s.refuse(c.Words[i].At, "quote it", "%s: which variable it sets cannot be told", c.Words[i].Text)
			return
		}
		set := Word{Text: value, Static: c.Words[i].Static}
		s.assigned(v, set, c.Words[i].At, true)
		env = append(env, Variable{v, set})
	}
	for n := 0; n < w.operands && i < len(c.Words); n++ {
		if !c.Words[i].one() {
			s.refuse(c.Words[i].At, "quote it", "%s %s: which word is the program cannot be told", Base(name), c.Words[i].Text)
			return
		}
		i++
	}
	if !w.named {
		c.Kind = Carrier
	}
	if i >= len(c.Words) && w.shell {
		c.need(0, 0, "starts a shell that reads %s", in)
	}
	if i < len(c.Words) {
		if strings.HasPrefix(c.Words[i].Text, "--") { // busybox --install
			s.refuse(c.Words[i].At, "leave the option out", "%s %s is not judged", Base(name), c.Words[i].Text)
			return
		}
		if s.dialect == POSIX && name == "time" { // to bash it is a word of the shell's
			if strings.Contains(c.Words[i].Text, "=") {
				s.refuse(c.Words[i].At, "set the variable before time", "%s is a program to some shells, and sets a variable to others", c.Words[i].Text)
			}
			s.simple(c.Words[i:], env, in)
		} else {
			s.program(c.Words[i:], env, in)
		}
	}
}

// xargs appends what it reads, or puts it in place of a mark.
func xargs(s *scope, c *Command, _ stdin) {
	o := options{
		flags: "0rtxo", args: "nPLIdEsa", attached: "ile",
		long:    "null no-run-if-empty verbose exit open-tty max-lines eof replace", // the last three have a value behind = only
		longArg: "max-args max-procs delimiter max-chars arg-file process-slot-var",
	}
	i, strange := o.end(c.Words, 1)
	if strange >= 0 {
		s.refuse(c.Words[strange].At, "leave the option out", "xargs %s: what is started then cannot be told", c.Words[strange].Text)
		return
	}
	c.Kind = Carrier
	if i >= len(c.Words) {
		return // echo
	}
	m, ok := s.xargsMarks(&o, c.Words[1:i])
	if !ok {
		return
	}
	inner, env := slices.Clone(c.Words[i:]), append(slices.Clone(c.Env), m.sets...)
	if m.mark != "" {
		inner = filled(inner, m.mark, false)
	}
	if m.mark == "" || m.appends {
		inner = append(inner, Word{Text: "what xargs reads", Split: true, At: c.Words[0].At})
	}
	s.program(inner, env, stdin{what: "nothing"})
}

// xargsMarks are options of xargs that say what it starts the program with: where what
// it reads goes, and variables.
type xargsMarks struct {
	mark    string // in the place of this
	appends bool   // behind the words: options that may take the mark back
	sets    []Variable
}

// slot notes the variable that --process-slot-var names: its value is a number, and
// a name like PATH would lead to programs that lie in a directory 0.
func (m *xargsMarks) slot(s *scope, w Word, name string, known bool) bool {
	if !known || !syntax.ValidName(name) {
		s.refuse(w.At, "write the name out", "xargs %s: which variable it sets cannot be told", w.Text)
		return false
	}
	v := Variable{Name: name, Value: Word{Text: "what xargs counts", At: w.At}}
	s.assigned(v.Name, v.Value, w.At, true)
	m.sets = append(m.sets, v)
	return true
}

func (s *scope) xargsMarks(o *options, words []Word) (m xargsMarks, ok bool) {
	set := func(at Pos, mark string, known bool) bool {
		if m.mark != "" || mark == "" || !known {
			s.refuse(at, "write -I{} once", "where xargs puts what it reads cannot be told")
			return false
		}
		m.mark = mark
		return true
	}
	for j := 0; j < len(words); j++ {
		w := words[j]
		if name, isLong := strings.CutPrefix(w.Text, "--"); isLong {
			name, value, given := strings.Cut(name, "=")
			m.appends = m.appends || name == "max-args" || name == "max-lines"
			known := w.Static
			if !given {
				value = "{}"
				if has(o.longArg, name) {
					if j++; j < len(words) {
						value, known = words[j].Text, words[j].Static
					}
				}
			}
			if name == "replace" && !set(w.At, value, true) {
				return m, false
			}
			if name == "process-slot-var" && !m.slot(s, w, value, known) {
				return m, false
			}
			continue
		}
		for k := 1; k < len(w.Text); k++ {
			letter, value := w.Text[k], Word{Text: w.Text[k+1:], Static: true}
			takes := strings.IndexByte(o.args, letter) >= 0
			if !takes && strings.IndexByte(o.attached, letter) < 0 {
				continue
			}
			if takes && value.Text == "" && j+1 < len(words) {
				j++
				value = words[j]
			}
			if letter == 'i' && value.Text == "" {
				value.Text = "{}"
			}
			m.appends = m.appends || strings.IndexByte("nLl", letter) >= 0
			if (letter == 'I' || letter == 'i') && !set(w.At, value.Text, value.Static) {
				return m, false
			}
			break
		}
	}
	return m, true
}

// filled are words with something unknown in place of mark; safe says that it
// does not begin as an option does.
func filled(words []Word, mark string, safe bool) []Word {
	out := slices.Clone(words)
	for i, w := range out {
		known := w.Prefix
		if w.Static {
			known = w.Text
		}
		if before, _, found := strings.Cut(known, mark); found {
			out[i].Static, out[i].Prefix, out[i].noOption = false, before, safe && before == ""
		}
	}
	return out
}

// find starts what stands between -exec and ; or +.
func find(s *scope, c *Command, _ stdin) {
	safe := true // {} is no option: it begins as its starting point does
	paths := true
	var unknown *Word // the first that may be -exec
	var may mayExec
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		if !w.known() && unknown == nil {
			unknown, safe = &c.Words[i], false
		}
		if may.next(w) {
			s.refuse(unknown.At, "quote it, and let a directory stand before it: ./…", "find %s may become -exec", unknown.Text)
			return
		}
		if w.Static && (strings.HasPrefix(w.Text, "-") || w.Text == "(" || w.Text == "!") && w.Text != "-H" && w.Text != "-L" && w.Text != "-P" {
			paths = false
		} else if paths && !w.plain() && w.Text != "-H" && w.Text != "-L" && w.Text != "-P" {
			safe = false
		}
		switch w.Text {
		case "-exec", "-execdir", "-ok", "-okdir":
			if unknown != nil {
				s.refuse(unknown.At, "let a directory stand before it: ./…", "find %s may become -exec", unknown.Text)
				return
			}
			end := i + 1
			for end < len(c.Words) && !(c.Words[end].Static && (c.Words[end].Text == ";" || c.Words[end].Text == "+")) {
				end++
			}
			switch {
			case end == i+1 || end == len(c.Words):
				s.refuse(w.At, `end it with \;`, "what find starts has no end")
				return
			case c.Words[end].Text == "+" && c.Words[end-1].Text != "{}": // to busybox it ends here
				s.refuse(c.Words[end].At, `end it with \; or {} +`, "programs differ in whether what find starts ends at +")
				return
			}
			inner := filled(c.Words[i+1:end], "{}", safe)
			s.program(inner, c.Env, stdin{what: "nothing"})
			i = end
		case "-files0-from":
			safe = false
		case "-fprint", "-fprint0", "-fls", "-fprintf":
			if i+1 < len(c.Words) {
				s.file(c.Words[i+1], true)
			}
		}
	}
}

// mayExec looks for words that may be -exec, a program, and the ; behind it.
type mayExec struct {
	exec    bool // the word before may be -exec
	any     bool // one of those before may be
	program bool // and behind one stands what may be a program
}

// next takes the next word, and says whether it may be the end of what is started.
func (m *mayExec) next(w Word) bool {
	end := w.Static && (w.Text == ";" || w.Text == "+")
	may := m.any && end || m.program && !w.known() || !w.known() && !w.one()
	m.program = m.program || m.exec && !(w.Static && strings.HasPrefix(w.Text, "-")) // no program has such a name
	m.exec = !w.known()
	m.any = m.any || m.exec
	return may
}
