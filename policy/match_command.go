// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/sandbox"
)

// A pattern is words: options, which a command must have in any order and
// writing (-rf is -r -f, --x=y is --x y), and operands, in their order from the
// first one on. * within a word is any text; what follows the pattern is not
// looked at.

// any says that the entry names everything that the program may start.
func (a AllowedCommand) any() bool {
	return slices.ContainsFunc(a.Args, func(v Value[string]) bool { return v.V == anything })
}

// covers says whether the entry has one for c's arguments, and if so which need
// of c it does not name; nil is none.
func (a AllowedCommand) covers(c *shell.Command) (missing *shell.Need, ok bool) {
	if a.any() {
		return nil, true
	}
	if len(a.Args) == 0 {
		return unnamed(c, nil), true
	}
	for _, v := range a.Args {
		named, matches := matchAllowed(strings.Fields(v.V), c)
		if !matches {
			continue
		}
		need := unnamed(c, named)
		if need == nil {
			return nil, true
		}
		missing, ok = need, true
	}
	return missing, ok
}

// unnamed is the first need of c whose words are not all among named.
func unnamed(c *shell.Command, named map[int]bool) *shell.Need {
	for i := range c.Needs {
		n := &c.Needs[i]
		if n.To == 0 {
			return n
		}
		for j := n.From; j < n.To; j++ {
			if !named[j] {
				return n
			}
		}
	}
	return nil
}

// matchAllowed says whether c certainly has the pattern, and which of its words
// the pattern names outright. A word that is not known matches only *.
func matchAllowed(pattern []string, c *shell.Command) (named map[int]bool, ok bool) {
	named = map[int]bool{}
	next := firstOperand(c)
	end := optionsEnd(c, next) // of what can be an option
	spread := false            // a word before may be several: which stands where is not known
	for _, p := range pattern {
		if p == "--" {
			end = len(c.Words) // what it names behind it is not an option, but there
		}
		if isOption(p) {
			at := findOption(p, c, end)
			if len(at) == 0 {
				return nil, false
			}
			for _, i := range at {
				named[i] = true
			}
		}
	}
	for _, p := range pattern {
		if isOption(p) {
			continue
		}
		option := 0 // the one right before the operand
		for next < len(c.Words) && (named[next] || c.Words[next].Static && isOption(c.Words[next].Text)) {
			if option = next; named[next] {
				option = 0
			}
			next++
		}
		switch {
		case next == len(c.Words) && p == "*":
			continue
		case next == len(c.Words):
			return nil, false
		case p == "*":
			spread = spread || c.Words[next].Split || c.Words[next].Many
		case spread || !c.Words[next].Static || !sandbox.Matches(p, c.Words[next].Text):
			return nil, false
		case option > 0 && takesValue(c, option) && !inNeed(c, next):
			return nil, false // it may be the option's value, and the operand another
		default:
			named[next] = true
		}
		next++
	}
	return named, true
}

// optionsEnd is the index of -- behind the words from on, where it ends the options.
func optionsEnd(c *shell.Command, from int) int {
	for i := from; i < len(c.Words); i++ {
		if c.Words[i].Static && c.Words[i].Text == "--" {
			return i
		}
	}
	return len(c.Words)
}

// inNeed says that the word is part of a need: what it is was read off the options
// before it, which are known or have to be named, too.
func inNeed(c *shell.Command, word int) bool {
	return slices.ContainsFunc(c.Needs, func(n shell.Need) bool { return n.From <= word && word < n.To })
}

// takesValue says that the word behind an option may be its value, as far as the
// option's form says, and usage: what has its value behind = needs no other, and some
// take none wherever they are.
func takesValue(c *shell.Command, option int) bool {
	o := c.Words[option].Text
	if strings.Contains(o, "=") || strings.HasPrefix(o, "--no-") {
		return false
	}
	switch o {
	case "--verbose", "--quiet", "--silent", "--yes", "--force", "--dry-run", "--all", "--rm":
		return false
	}
	if shell.Base(c.Name()) != "git" || c.Sub == 0 {
		return true
	}
	sub := c.Words[c.Sub].Text
	return !slices.Contains(gitFlags, o) && !(sub == "push" && slices.Contains(pushFlags, o))
}

// gitFlags are options of git's subcommands that take no word behind them, pushFlags
// those of push.
var (
	gitFlags  = []string{"-q", "-v", "--tags", "--prune", "--cached", "--staged", "--stat", "--oneline", "--amend", "--progress", "--rebase", "--ff-only", "--name-only", "--short", "--hard", "--soft", "--mixed", "--patch"}
	pushFlags = []string{"-u", "--set-upstream", "-f", "-d", "--delete", "-n", "--force-with-lease", "--follow-tags", "--atomic"}
)

func isOption(w string) bool { return len(w) > 1 && w[0] == '-' && w != "--" }

// firstOperand is where the operands begin: behind the options of the program
// itself, where those are known.
func firstOperand(c *shell.Command) int {
	if c.Sub > 0 {
		return c.Sub
	}
	return 1
}

// findOption finds the words of c that are the option p, before the word end.
func findOption(p string, c *shell.Command, end int) []int {
	name, value, has := strings.Cut(p, "=")
	var at []int
	letters := map[byte]bool{}
	for i, w := range c.Words[1:max(end, 1)] {
		switch i++; {
		case !w.Static || !isOption(w.Text):
		case sandbox.Matches(p, w.Text):
			return []int{i}
		case has && w.Text == name && i+1 < len(c.Words) && c.Words[i+1].Static && sandbox.Matches(value, c.Words[i+1].Text):
			return []int{i, i + 1}
		case w.Text[1] != '-' && p[1] != '-':
			for j := 1; j < len(w.Text); j++ {
				if strings.IndexByte(p[1:], w.Text[j]) >= 0 {
					letters[w.Text[j]] = true
				}
			}
			// Only a word that is nothing but these letters is named by them.
			if strings.Trim(w.Text[1:], p[1:]) == "" {
				at = append(at, i)
			}
		}
	}
	for j := 1; j < len(p); j++ {
		if p[1] == '-' || !letters[p[j]] {
			return nil
		}
	}
	if len(at) == 0 {
		at = []int{0} // in a word with other letters: present, and not named
	}
	return at
}

// mayBe says whether c is what a pattern of deny or ask means, or may become
// it: a word that is not known counts as the one that is looked for.
func mayBe(pattern string, c *shell.Command) bool {
	words := strings.Fields(pattern)
	if !sandbox.Matches(words[0], c.Name()) && !sandbox.Matches(words[0], shell.Base(c.Name())) {
		return false
	}
	unknown := slices.ContainsFunc(c.Words[1:], func(w shell.Word) bool { return !w.Static })
	next, first := 1, true
	if c.Sub > 0 {
		next = c.Sub
	}
	for i, p := range words[1:] {
		if p == "*" && i == len(words)-2 {
			return true
		}
		if isOption(p) {
			if !unknown && !hasOption(p, c) {
				return false
			}
			continue
		}
		found := false
		for ; next < len(c.Words) && !found; next++ {
			w := c.Words[next]
			if w.Static && isOption(w.Text) {
				continue
			}
			found = !w.Static || sandbox.Matches(p, w.Text)
			// The first operand is the first word that is no option and no value of one.
			if first && !found && (c.Sub > 0 || next == 1 || !isOption(c.Words[next-1].Text)) {
				return false
			}
		}
		if !found {
			return false
		}
		first = false
	}
	return true
}

// hasOption is findOption, with the long names of the letters that people deny.
func hasOption(p string, c *shell.Command) bool {
	if len(findOption(p, c, len(c.Words))) > 0 {
		return true
	}
	if p[1] == '-' {
		return false
	}
	for j := 1; j < len(p); j++ {
		one := "-" + p[j:j+1]
		long := map[string]string{"-r": "--recursive", "-R": "--recursive", "-f": "--force", "-a": "--all"}[one]
		other := map[string]string{"-r": "-R", "-R": "-r"}[one]
		if len(findOption(one, c, len(c.Words))) == 0 && (other == "" || len(findOption(other, c, len(c.Words))) == 0) && !slices.ContainsFunc(c.Words, func(w shell.Word) bool {
			return long != "" && len(w.Text) > 2 && strings.HasPrefix(long, w.Text) // abbreviated
		}) {
			return false
		}
	}
	return true
}
