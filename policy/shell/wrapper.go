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
		if !w.Static {
			if w.plain() {
				return i, -1
			}
			return i, i
		}
		switch {
		case w.Text == "--":
			return i + 1, -1
		case len(w.Text) < 2 || w.Text[0] != '-':
			return i, -1
		case strings.HasPrefix(w.Text, "--"):
			name, _, given := strings.Cut(w.Text[2:], "=")
			switch {
			case has(o.long, name):
			case has(o.longArg, name) && given:
			case has(o.longArg, name):
				i++
			default:
				return i, i
			}
		default:
			next, ok := o.cluster(w.Text[1:])
			if !ok {
				return i, i
			}
			i += next
		}
	}
	return min(i, len(words)), -1
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
		"chroot":  {options: options{longArg: "userspec groups", long: "skip-chdir"}, operands: 1, named: true},
		"taskset": {options: options{flags: "ac", long: "all-tasks cpu-list"}, operands: 1, named: true},
		"chrt":    {options: options{flags: "bfiro", args: "TPD"}, operands: 1, named: true},
		"busybox": {named: true}, "toybox": {named: true},
		"fakeroot": {named: true}, "eatmydata": {named: true},
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
		if c.Words[i].Split || !syntax.ValidName(v) {
			s.refuse(c.Words[i].At, "quote it", "%s: which variable it sets cannot be told", c.Words[i].Text)
			return
		}
		set := Word{Text: value, Static: c.Words[i].Static}
		s.assigned(v, set, c.Words[i].At, true)
		env = append(env, Variable{v, set})
	}
	for n := 0; n < w.operands && i < len(c.Words); n++ {
		if c.Words[i].Split {
			s.refuse(c.Words[i].At, "quote it", "%s %s: which word is the program cannot be told", Base(name), c.Words[i].Text)
			return
		}
		i++
	}
	if !w.named {
		c.Kind = Carrier
	}
	if i < len(c.Words) {
		if strings.HasPrefix(c.Words[i].Text, "--") { // busybox --install
			s.refuse(c.Words[i].At, "leave the option out", "%s %s is not judged", Base(name), c.Words[i].Text)
			return
		}
		s.program(c.Words[i:], env, in)
	}
}

// xargs appends what it reads, or puts it in place of a mark.
func xargs(s *scope, c *Command, _ stdin) {
	o := options{
		flags: "0rtxo", args: "nPLIdEsa", attached: "ile",
		long: "null no-run-if-empty verbose exit open-tty", longArg: "max-args max-procs max-lines delimiter eof max-chars arg-file process-slot-var replace",
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
	mark := ""
	for j, w := range c.Words[:i] {
		switch {
		case strings.HasPrefix(w.Text, "--replace"):
			if _, v, ok := strings.Cut(w.Text, "="); ok {
				mark = v
			} else {
				mark = "{}"
			}
		case strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--"):
			if k := strings.IndexAny(w.Text, "Ii"); k > 0 && strings.Trim(w.Text[1:k], "0rtxo") == "" {
				mark = w.Text[k+1:]
				if mark == "" && w.Text[k] == 'I' && j+1 < i {
					mark = c.Words[j+1].Text
				} else if mark == "" {
					mark = "{}"
				}
			}
		}
	}
	inner := slices.Clone(c.Words[i:])
	if mark == "" {
		inner = append(inner, Word{Text: "what xargs reads", Split: true, At: c.Words[0].At})
	} else {
		inner = filled(inner, mark, false)
	}
	s.program(inner, c.Env, stdin{what: "nothing"})
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
	var unknown *Word
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		if !w.known() {
			unknown, safe = &c.Words[i], false
		}
		if !w.known() && w.Split || unknown != nil && w.Static && (w.Text == ";" || w.Text == "+") {
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
			for end < len(c.Words) && !(c.Words[end].Static && (c.Words[end].Text == ";" || c.Words[end].Text == "+" && c.Words[end-1].Text == "{}")) {
				end++
			}
			if end == i+1 || end == len(c.Words) {
				s.refuse(w.At, `end it with \;`, "what find starts has no end")
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

// shells are judged by the line that they are given.
func shells(d Dialect) rule {
	return func(s *scope, c *Command, in stdin) {
		o := options{flags: "ceuxlvnhbmfBETCps", args: "o", long: "login norc noprofile posix verbose"}
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
			c.need(at, at+1, "reads the start-up files of its user, which bash does not with --noprofile")
		}
		isLine, isInput := false, false
		for j, w := range c.Words[1:min(i, len(c.Words))] {
			if !strings.HasPrefix(w.Text, "-") || strings.HasPrefix(w.Text, "--") {
				continue
			}
			isLine, isInput = isLine || strings.Contains(w.Text, "c"), isInput || strings.Contains(w.Text, "s")
			if strings.HasSuffix(w.Text, "o") && j+2 < len(c.Words) {
				s.option(c.Words[j+2], "pipefail errexit nounset xtrace verbose noexec noglob noclobber errtrace functrace")
			}
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
			s.line(*in.text, d, &c.Words[0].At, false)
		default:
			c.need(0, 0, "reads commands from %s", in)
		}
	}
}

// login is the option among a shell's that makes it read start-up files; 0 is none.
func login(words []Word) (at int) {
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case w.Text == "--noprofile":
			return 0
		case w.Text == "--login" || strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--") && strings.Contains(w.Text, "l"):
			at = i
		}
	}
	return at
}

// WithoutProfile is argv so that what it starts is what its words say: a login bash
// reads files in its user's home first, which whoever may write there has written.
// Others than bash have no such option.
func WithoutProfile(argv []string) []string {
	if len(argv) < 2 || Base(argv[0]) != "bash" {
		return argv
	}
	words := make([]Word, 0, len(argv))
	for i, s := range argv {
		if i > 0 && (len(s) < 2 || s[0] != '-' || s == "--") {
			break
		}
		words = append(words, Word{Text: s, Static: true})
	}
	if login(words) == 0 {
		return argv
	}
	return slices.Concat(argv[:1], []string{"--noprofile"}, argv[1:])
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
