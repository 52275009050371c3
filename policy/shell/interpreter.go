// SPDX-License-Identifier: Apache-2.0

package shell

import "strings"

// Programs that read a line of shell: shells, and what hands its words to one.

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
// files in its user's home, which code inside may have written, ~/.profile first and
// ~/.bash_logout at an exit. Without the option it does the same otherwise. What other
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
