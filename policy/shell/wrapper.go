// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Programs that start the program that their arguments name.

// options is how a program reads its options; what is not in it is not judged.
type options struct {
	flags    string // letters without a value
	args     string // letters with a value, in the same word or the next
	attached string // letters whose value, if any, is in the same word
	long     string // names without a value, separated by spaces
	longArg  string // names with a value, after = or in the next word
}

// has says that name is one of list's words, which have a space between them.
func has(list, name string) bool {
	for from := 0; name != ""; {
		i := strings.Index(list[from:], name)
		if i < 0 {
			return false
		}
		i += from
		from = i + len(name)
		if (i == 0 || list[i-1] == ' ') && (from == len(list) || list[from] == ' ') {
			return true
		}
	}
	return false
}

// end is the index of the first word from i on that is no option. Every word
// before it is known; where one is not, or is no option of o, the second result
// is the word's index.
func (o *options) end(words []Word, i int) (end, strange int) {
	for ; i < len(words); i++ {
		w := words[i]
		switch {
		case !w.Static && w.plain():
			return i, -1
		case !w.Static:
			return i, i
		case w.Text == "--":
			return i + 1, -1
		case len(w.Text) < 2 || w.Text[0] != '-':
			return i, -1
		}
		next, ok := o.option(w)
		if !ok {
			return i, i
		}
		if next == 1 && i+1 < len(words) && !words[i+1].one() {
			return i + 1, i + 1 // what else it becomes is no value
		}
		i += next
	}
	return min(i, len(words)), -1
}

// option reads a word that begins with a dash; next is 1 when the word that follows
// is its value, ok is false when it is no option of o.
func (o *options) option(w Word) (next int, ok bool) {
	name, isLong := strings.CutPrefix(w.Text, "--")
	if !isLong {
		return o.cluster(w.Text[1:])
	}
	name, _, given := strings.Cut(name, "=")
	switch {
	case has(o.longArg, name) && !given:
		return 1, true
	case has(o.long, name), has(o.longArg, name):
		return 0, true
	}
	return 0, false
}

// cluster reads letters behind one dash; next is 1 when the last one takes the
// word that follows.
func (o *options) cluster(letters string) (next int, ok bool) {
	for j := 0; j < len(letters); j++ {
		switch c := letters[j]; {
		case strings.IndexByte(o.flags, c) >= 0:
		case strings.IndexByte(o.attached, c) >= 0:
			return 0, true
		case strings.IndexByte(o.args, c) >= 0:
			if j == len(letters)-1 {
				return 1, true
			}
			return 0, true
		default:
			return 0, false
		}
	}
	return 0, true
}

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
	inner := slices.Clone(c.Words[i:])
	if m.mark != "" {
		inner = filled(inner, m.mark, false)
	}
	if m.mark == "" || m.appends {
		inner = append(inner, Word{Text: "what xargs reads", Split: true, At: c.Words[0].At})
	}
	s.program(inner, c.Env, stdin{what: "nothing"})
}

// xargsMarks are options of xargs that say where what it reads goes.
type xargsMarks struct {
	mark    string // in the place of this
	appends bool   // behind the words: options that may take the mark back
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
			if !given {
				value = "{}"
				if has(o.longArg, name) {
					j++
				}
			}
			if name == "replace" && !set(w.At, value, true) {
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

// shells are judged by the line that they are given.
func shells(d Dialect) rule {
	return func(s *scope, c *Command, in stdin) {
		o := options{flags: shellFlags, args: "o", long: "login norc noprofile posix verbose"}
		for _, w := range c.Words[1:] { // + options are not read by options.end
			if w.Static && strings.HasPrefix(w.Text, "+") {
				s.refuse(w.At, "leave it out", "%s %s changes how the shell reads the text", Base(c.Name()), w.Text)
				return
			}
			if !w.plain() {
				continue
			}
			break
		}
		i, strange := o.end(c.Words, 1)
		if strange >= 0 {
			w := c.Words[strange]
			if w.Static && (w.Text == "--version" || w.Text == "--help") && strange == 1 && len(c.Words) == 2 {
				return
			}
			c.need(strange, strange+1, "may run more than the line that it is given")
			s.refuseUnknown(w)
		}
		if at := login(c.Words[:min(i, len(c.Words))]); at > 0 {
			c.need(at, at+1, "reads files of its user's when it begins, and when it ends by exit")
		}
		isLine, isInput := false, false
		for j, w := range c.Words[1:min(i, len(c.Words))] {
			if !strings.HasPrefix(w.Text, "-") || strings.HasPrefix(w.Text, "--") {
				continue
			}
			if o := strings.IndexByte(w.Text, 'o'); o > 0 && o < len(w.Text)-1 {
				// The name that belongs to o is the next word; or it is bash's -norc.
				s.refuse(w.At, "write -o NAME by itself, and long options with two dashes", "%s %s is not judged", Base(c.Name()), w.Text)
				return
			}
			isLine, isInput = isLine || strings.Contains(w.Text, "c"), isInput || strings.Contains(w.Text, "s")
			if strings.HasSuffix(w.Text, "o") && j+2 < len(c.Words) {
				s.option(c.Words[j+2], "pipefail errexit nounset xtrace verbose noexec noglob noclobber errtrace functrace")
			}
		}
		if isLine && isInput { // dash executes both
			c.need(0, 0, "reads commands from %s, besides its line", in)
		}
		switch {
		case isLine && i < len(c.Words):
			s.shellLine(c, c.Words[i], d)
		case isLine:
			s.refuse(c.Words[0].At, "write the line after -c", "%s -c has no line", Base(c.Name()))
		case i < len(c.Words) && !isInput:
			c.need(i, i+1, "runs a script file")
		case in.text != nil && strange < 0:
			c.Kind = Carrier
			s.fed++
			s.line(*in.text, d, &c.Words[0].At, false)
			s.fed--
		default:
			c.need(0, 0, "reads commands from %s", in)
		}
	}
}

// shellFlags are the letters of a shell's options that stand alone.
const shellFlags = "ceuxlvnhbmfBETCps"

// login is the option among a shell's that makes it read files of its user's; 0 is none.
// With --noprofile bash still reads ~/.bash_logout at an exit.
func login(words []Word) (at int) {
	for i := 1; i < len(words); i++ {
		if w := words[i]; w.Text == "--login" || strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--") && strings.Contains(w.Text, "l") {
			at = i
		}
	}
	return at
}

// WithoutLogin is argv so that what it starts is what its words say: a login bash reads
// files in its user's home, which whoever may write there has written, ~/.profile first
// and ~/.bash_logout at an exit. Without the option it does the same otherwise. What other
// shells would do is left as it is, and refused.
func WithoutLogin(argv []string) []string {
	if len(argv) < 2 || Base(argv[0]) != "bash" {
		return argv
	}
	out := argv[:1:1]
	for i, s := range argv[1:] {
		letters := strings.TrimPrefix(s, "-")
		switch {
		case len(s) < 2 || s[0] != '-' || s == "--":
			return append(out, argv[i+1:]...)
		case s == "--login":
			continue
		case strings.Trim(letters, shellFlags) == "":
			if s = "-" + strings.ReplaceAll(letters, "l", ""); s == "-" {
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

func (in stdin) String() string {
	if in.what != "" {
		return in.what
	}
	return "its input"
}

// refuseUnknown refuses an option that no policy can name.
func (s *scope) refuseUnknown(w Word) {
	if !w.Static {
		s.refuse(w.At, "write it out", "%s may be an option", w.Text)
	}
}

func (s *scope) shellLine(c *Command, w Word, d Dialect) {
	if !w.Static {
		s.refuse(w.At, "put it in single quotes, and hand values over as arguments: sh -c '… \"$1\"' sh VALUE",
			"what the shell executes cannot be told from the text: %s", w.Text)
		return
	}
	c.Kind = Carrier
	s.line(w.Text, d, &w.At, false)
}

// watch hands its words to sh as one line.
func watch(s *scope, c *Command, _ stdin) {
	o := options{flags: "bcdegtwx", args: "nq", long: "beep color differences errexit chgexit no-title no-wrap exec precise", longArg: "interval equexit"}
	i, strange := o.end(c.Words, 1)
	if strange >= 0 {
		s.refuse(c.Words[strange].At, "leave the option out", "watch %s is not judged", c.Words[strange].Text)
		return
	}
	s.joined(c.Words[min(i, len(c.Words)):])
}

// joined judges words that a program hands to sh as one line.
func (s *scope) joined(words []Word) {
	var text []string
	for _, w := range words {
		if !w.Static {
			s.refuse(w.At, "write it out", "what is handed to a shell cannot be told from the text: %s", w.Text)
			return
		}
		text = append(text, w.Text)
	}
	if len(words) > 0 {
		s.line(strings.Join(text, " "), POSIX, &words[0].At, false)
	}
}
