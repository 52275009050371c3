// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/policy/shell"
)

// commands judges what the call starts by every layer that has something to
// say about it.
func (d *decision) commands() *refusal {
	d.plan.Commands = planCommands(d.layers)
	if d.plan.Commands != nil {
		d.plan.Commands.Programs = allPrograms(d.layers, d.call.Kind == StartSandbox)
	}
	if d.plan.Commands == nil || d.call.Kind == StartSandbox {
		return nil
	}
	if d.call.Kind == RunCommand && len(d.call.Argv) == 0 {
		return nil // what an image runs is judged when it is known: Policy.Starts
	}
	s := d.script()
	s.marked = d.marked()
	return d.starts(s)
}

// marked says that arguments of the tool that is called are kept out of records.
func (d *decision) marked() bool {
	if d.call.Tool == nil {
		return false
	}
	return d.each(func(f *File) *refusal {
		if r := f.Tools.rule(d.call.Tool.Name, true); r != nil && len(r.Redact) > 0 {
			return &refusal{}
		}
		return nil
	}) != nil
}

// Starts judges argv, which is what call turned out to start: an image says so
// only when it is there. It is nil when nothing speaks against it, and a Verdict
// that denies or asks otherwise.
func (p *Policy) Starts(call *Call, argv []string) (v *Verdict) {
	defer func() {
		if r := recover(); r != nil {
			denied := refuse("built-in: internal fault", "report this", "the decision failed: %v", r).verdict()
			v = &denied
		}
	}()
	d := &decision{Policy: p, call: call, layers: p.layers(call.Operator)}
	if planCommands(d.layers) == nil {
		return nil
	}
	r := d.starts(judged{Script: shell.Argv(argv)})
	if r == nil {
		var q *Question
		if q, r = d.question(); q != nil {
			asks := q.verdict(Plan{})
			return &asks
		}
	}
	if r != nil {
		denied := r.verdict()
		return &denied
	}
	return nil
}

// judged is a script, and how places in it are written.
type judged struct {
	*shell.Script
	line   bool // it is a text with lines; else places are arguments
	marked bool // of its words only programs are named: some are in no record
	more   int  // words behind the first that the call has not, or fewer; see Plan.Argv
}

func (j judged) place(at shell.Pos) string {
	if j.line {
		return "at " + at.String()
	}
	if at.Col > 1 {
		at.Col -= j.more
	}
	return fmt.Sprintf("in argument %d", at.Col)
}

// script is what the call starts, read as a shell reads it.
func (d *decision) script() judged {
	c := d.call
	if c.Kind == RunCommand {
		argv := shell.WithoutLogin(c.Argv)
		if !slices.Equal(argv, c.Argv) {
			d.plan.Argv = argv
		}
		return judged{Script: shell.Argv(argv), more: len(argv) - len(c.Argv)}
	}
	switch {
	case len(c.Program) == 2 && c.Language == "bash":
		return judged{Script: shell.Line(c.Script, shell.Bash), line: true}
	case len(c.Program) == 2 && c.Language == "sh":
		return judged{Script: shell.Line(c.Script, shell.POSIX), line: true}
	case len(c.Program) == 0:
		return judged{Script: shell.Argv([]string{c.Language, "source"})}
	}
	return judged{Script: shell.Argv(append(slices.Clone(c.Program), c.Argv...))}
}

// starts asks every layer about a script. A variable, a command or a redirect
// that one does not allow refuses the whole.
func (d *decision) starts(s judged) *refusal {
	moved := d.call.Cwd != "" || s.moves()
	return d.each(func(f *File) *refusal {
		c := &f.Commands
		if !c.At.Said() {
			return nil
		}
		if len(s.Refusals) > 0 {
			r := s.Refusals[0]
			if s.marked {
				r.Why, r.Hint = "an argument that is in no record is part of it", ""
			}
			return refuse(f.rule(c.At), r.Hint, "what would run cannot be told, %s: %s", s.place(r.At), r.Why)
		}
		for _, v := range s.Variables {
			if v.Never || !slices.ContainsFunc(c.Env, func(n Value[string]) bool { return n.V == v.Name }) {
				return refuse(f.rule(c.At), v.Hint, "%s is set %s, and changes what programs do", v.Name, s.place(v.At))
			}
		}
		for _, file := range s.Files {
			if r := f.boundRedirect(file, s); r != nil {
				return r
			}
		}
		for i := range s.Commands {
			c := &s.Commands[i]
			asked := d.asks(f, c, s, moved)
			if r := f.boundCommand(c, s, d.call.Terminal, moved, asked); r != nil {
				return r
			}
		}
		return nil
	})
}

// boundRedirect keeps lines from writing what shells and git read when they
// start.
func (f *File) boundRedirect(file shell.File, s judged) *refusal {
	name := strings.Trim(file.Path.Text, `"'`)
	if !file.Write || !slices.Contains(startFiles, path.Base(name)) && !strings.Contains(name, ".git/") {
		return nil
	}
	return refuse(f.rule(f.Commands.At), "write another file", "%s is written %s, and what it says is executed later", quote(name), s.place(file.Path.At))
}

var startFiles = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv", ".kshrc", ".gitconfig", ".inputrc",
	".npmrc", ".envrc", ".vimrc", ".pythonrc", ".gdbinit", ".lldbinit", ".curlrc", ".wgetrc", "sitecustomize.py", "usercustomize.py",
}

// asks notes the rules of f that ask about a command. It is certain when one of
// them surely means it: then the command needs no entry of the allow-list,
// because the yes is for that very command.
func (d *decision) asks(f *File, c *shell.Command, s judged, moved bool) (certain bool) {
	for _, a := range f.Commands.Ask {
		if !mayBe(a.Pattern, c) {
			continue
		}
		what := fmt.Sprintf("%s %s needs approval by %s", s.shown(c), s.place(c.At), quote(a.Pattern))
		for i := range c.Needs {
			what += ", and " + s.need(&c.Needs[i])
		}
		d.ask(f, a.At, a.Channels, "%s", what)
		words := strings.Fields(a.Pattern)
		_, matches := matchAllowed(words[1:], c)
		certain = certain || matches && sameProgram(words[0], c.Name(), moved)
	}
	return certain
}

// boundCommand judges one command: deny first, then the allow-list, unless it is
// asked for certain.
func (f *File) boundCommand(c *shell.Command, s judged, terminal, moved, asked bool) *refusal {
	list := &f.Commands
	for _, v := range list.Deny {
		if mayBe(v.V, c) {
			return refuse(f.rule(v.At), "leave it out; the policy denies it", "%s %s is denied by %s", s.shown(c), s.place(c.At), quote(v.V))
		}
	}
	if !list.Allow.Said() || asked {
		return nil
	}
	if c.Kind != shell.Program || harmless(c) {
		if len(c.Needs) > 0 {
			return refuse(f.rule(list.Allow.At), "write the commands themselves", "%s %s %s", s.shown(c), s.place(c.At), s.need(&c.Needs[0]))
		}
		return nil
	}
	var missing *shell.Need
	named := false
	for _, a := range list.Allow.V {
		if a.Name != "*" && !sameProgram(a.Name, c.Name(), moved) {
			continue
		}
		switch need, ok := a.covers(c); {
		case !ok:
			named = true
		case need == nil && terminal && !a.any():
			return refuse(f.rule(a.At), "run it without a terminal (-t), or allow all it starts: {name: "+a.Name+`, args: ["**"]}`,
				"what is typed at a terminal is not judged")
		case need == nil:
			return nil
		default:
			missing = need
		}
	}
	return f.notAllowed(c, s, named, missing)
}

// notAllowed says why the allow-list refuses c.
func (f *File) notAllowed(c *shell.Command, s judged, named bool, missing *shell.Need) *refusal {
	rule, name := f.rule(f.Commands.Allow.At), shell.Common(c.Name())
	if s.marked && (missing != nil || named || len(c.Needs) > 0) {
		return refuse(rule, f.add(fmt.Sprintf("commands: {allow: [{name: %s, args: [%s]}]}", name, quote(anything))), "%s %s is not allowed with its arguments", quote(name), s.place(c.At))
	}
	if !named && len(c.Needs) > 0 {
		missing = &c.Needs[0]
	}
	if missing != nil {
		words := []string{anything}
		if missing.To > 0 {
			words = needed(c)
		}
		return refuse(rule, f.add(fmt.Sprintf("commands: {allow: [{name: %s, args: [%s]}]}", name, quote(strings.Join(words, " ")))),
			"%s %s %s, which the policy does not name", s.shown(c), s.place(c.At), missing.What)
	}
	if named {
		return refuse(rule, f.add(fmt.Sprintf("commands: {allow: [{name: %s, args: [%s]}]}", name, quote(arguments(c)))),
			"%s is allowed, and not with these arguments: %s %s", quote(name), s.shown(c), s.place(c.At))
	}
	why := ""
	if strings.IndexFunc(name, func(r rune) bool { return r > 0x7f }) >= 0 {
		why = "; it has letters that look like others"
	} else if strings.Contains(name, "/") {
		why = "; a path is a program of its own"
	}
	return refuse(rule, f.add("commands: {allow: ["+name+"]}"), "%s %s is not among the commands that are allowed%s", quote(name), s.place(c.At), why)
}

// need is what a part of a command does; it may repeat the part.
func (j judged) need(n *shell.Need) string {
	if j.marked {
		return "does more than its name says"
	}
	return n.What
}

// needed are the words that an entry has to have so that all needs of c are named:
// an option that brings code takes whatever the code is.
func needed(c *shell.Command) (words []string) {
	for i, n := range c.Needs {
		for _, w := range c.Words[n.From:n.To] {
			if option := w.Static && isOption(w.Text); i > 0 && !option {
				words = append(words, anything)
			} else {
				words = append(words, w.Text)
			}
		}
	}
	return words
}

// shown is a command as people see it, shortened.
func (j judged) shown(c *shell.Command) string {
	if j.marked {
		return quote(c.Name())
	}
	var b strings.Builder
	for i, w := range c.Words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.Text)
		if b.Len() > 80 {
			return quote(strings.ToValidUTF8(b.String()[:77], "") + "…")
		}
	}
	return quote(b.String())
}

// arguments are the first known ones.
func arguments(c *shell.Command) string {
	if len(c.Words) < 2 || !c.Words[1].Static {
		return "*"
	}
	return c.Words[1].Text
}

// harmless are programs that only print.
func harmless(c *shell.Command) bool {
	return slices.Contains([]string{"true", "false", "echo", "printf", "pwd"}, c.Name())
}

// sameProgram: a program by its name is the one in a system's directory, which
// is what PATH finds; any other path is only itself, and a relative one only
// where no cd comes first.
func sameProgram(allowed, name string, moved bool) bool {
	if strings.Contains(name, "/") && !path.IsAbs(name) && moved {
		return false
	}
	return allowed == name || allowed == shell.Common(name)
}

// moves says that a script changes its directory, so that a relative path in it
// is another file than the policy's.
func (j judged) moves() bool {
	for _, c := range j.Commands {
		switch shell.Base(c.Name()) {
		case "cd", "chdir", "pushd", "popd", "chroot":
			return true
		case "env", "sudo", "find", "gfind":
			if slices.ContainsFunc(c.Words, mayMove) {
				return true
			}
		}
	}
	return false
}

// mayMove: -C among letters behind one dash, --chdir, -D, and find's -execdir and -okdir.
func mayMove(w shell.Word) bool {
	letters, short := strings.CutPrefix(w.Text, "-")
	short = short && !strings.HasPrefix(letters, "-")
	return short && strings.ContainsAny(letters, "CD") || strings.HasPrefix(w.Text, "--chdir") || strings.HasSuffix(w.Text, "dir")
}
