// SPDX-License-Identifier: Apache-2.0

package shell

import "strings"

// Programs with a rule of their own.

// gitKnown are subcommands that git itself carries out. Any other may be an
// alias, or a program git-NAME.
const gitKnown = "add am annotate apply archive blame branch bundle cat-file check-attr check-ignore checkout cherry cherry-pick clean clone commit " +
	"config count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch fsck gc grep hash-object init " +
	"log ls-files ls-remote ls-tree merge merge-base mv name-rev notes prune pull push range-diff read-tree rebase reflog remote reset restore " +
	"rev-list rev-parse revert rm shortlog show show-branch show-ref sparse-checkout stash status submodule switch symbolic-ref tag " +
	"update-index update-ref var version whatchanged worktree write-tree help bisect"

// git: options before the subcommand, and options of subcommands that start a
// program. What a repository's own configuration and hooks start is not in the
// text.
func git(_ *scope, c *Command, _ stdin) {
	o := options{flags: "Pp", args: "C", long: "no-pager paginate no-optional-locks literal-pathspecs no-replace-objects version help"}
	i, strange := o.end(c.Words, 1)
	if strange >= 0 {
		c.need(strange, min(strange+2, len(c.Words)), "changes what git starts")
		return
	}
	if i >= len(c.Words) {
		return
	}
	c.Sub = i
	sub := c.Words[i]
	if !sub.Static || !has(gitKnown, sub.Text) {
		c.need(i, i+1, "may be an alias for another program")
		return
	}
	d := dangerous{
		long: "upload-pack receive-pack exec ext-diff open-files-in-pager extcmd config template strategy-option-file config-env",
		args: "SGLU",
	}
	switch sub.Text {
	case "commit":
		d.args = "mFCct"
	case "merge", "pull": // a strategy is a program git-merge-NAME
		d.short, d.args = "s", "mFX"
	case "tag", "notes":
		d.args = "mF"
	case "stash":
		d.args = "m"
	case "log":
		d.args = "SGLUn"
	case "clone":
		d.short, d.args = "uc", "boj"
	case "grep":
		d.short, d.args = "O", "efABCm"
	case "rebase":
		d.short, d.args = "xs", "XCS"
	case "submodule":
		d.words = "foreach"
	case "bisect":
		d.words = "run"
	case "config":
		gitConfig(c, i)
		return
	}
	part := Command{Words: c.Words[i:]}
	d.judge(nil, &part, stdin{})
	for _, n := range part.Needs {
		c.Needs = append(c.Needs, Need{From: n.From + i, To: n.To + i, What: n.What})
	}
	if !has("clone fetch pull push ls-remote remote submodule archive", sub.Text) {
		return
	}
	for j := range c.Words[i:] {
		before, _, is := strings.Cut(c.Words[i+j].Text, "::")
		if is && !strings.Contains(before, "/") {
			c.need(i+j, i+j+1, "names a program as the way to a repository")
		}
	}
}

// gitConfig: reading is fine, and so are names; other keys say what is started.
func gitConfig(c *Command, i int) {
	o := options{flags: "lz", long: "global local system worktree get get-all get-regexp list null show-origin show-scope name-only bool int includes", longArg: "type default"}
	end, strange := o.end(c.Words, i+1)
	read := false
	for _, w := range c.Words[i+1 : end] {
		read = read || strings.HasPrefix(w.Text, "--get") || w.Text == "--list" || w.Text == "-l"
	}
	if strange < 0 && (read || end >= len(c.Words)) {
		return
	}
	if strange < 0 && c.Words[end].Static {
		key := strings.ToLower(c.Words[end].Text)
		if len(c.Words) == end+1 || key == "get" || key == "list" || strings.HasPrefix(key, "user.") || key == "init.defaultbranch" ||
			key == "pull.rebase" || key == "advice.detachedhead" || strings.HasPrefix(key, "color.") {
			return
		}
	}
	c.need(i, min(end+1, len(c.Words)), "changes what git starts")
}

func tar(_ *scope, c *Command, _ stdin) {
	d := dangerous{short: "IF", args: "fCbgHKLNTVX", long: "checkpoint-action to-command use-compress-program rsh-command rmt-command info-script new-volume-script"}
	d.judge(nil, c, stdin{})
	for i, w := range c.Words[1:] {
		text := w.Text
		if strings.HasPrefix(text, "--") { // --file=HOST:…; others have no archive
			name, value, _ := strings.Cut(text, "=")
			if text = ""; strings.HasPrefix(name, "--f") {
				text = value
			}
		}
		if host, _, is := strings.Cut(text, ":"); is && w.Static && !strings.Contains(host, "/") {
			c.need(i+1, i+2, "reaches for another machine with a program")
		}
	}
	if len(c.Words) > 1 && c.Words[1].plain() { // letters without a dash
		if !c.Words[1].Static || strings.ContainsAny(c.Words[1].Text, d.short) {
			c.need(1, 2, "may start a program")
		}
	}
}

func makeRule(_ *scope, c *Command, _ stdin) {
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		name, _, set := strings.Cut(w.Text, "=")
		switch {
		case !w.known():
			c.need(i, i+1, "may be an option or a variable of make")
		case strings.HasPrefix(w.Text, "--"):
			name = strings.TrimPrefix(name, "--")
			if name != "" && (strings.HasPrefix("eval", name) || strings.HasPrefix("file", name) || strings.HasPrefix("makefile", name)) {
				c.need(i, min(i+2, len(c.Words)), "gives make other rules")
			}
		case strings.HasPrefix(w.Text, "-"):
			d := dangerous{short: "fE", args: "CIjloW"}
			if d.isShort(w.Text) {
				c.need(i, min(i+2, len(c.Words)), "gives make other rules")
			}
		case set && !has("V VERBOSE DEBUG PREFIX DESTDIR ARCH TARGET VERSION TAG ENV", name):
			c.need(i, i+1, "sets a variable of make, which may name a program")
		case w.Static && strings.ContainsAny(w.Text, "$`;&|<>()'\"\\\n#!*?[]{}~"):
			c.need(i, i+1, "has characters that make and its shell give a meaning")
		}
	}
}

func golang(_ *scope, c *Command, _ stdin) {
	d := dangerous{long: "exec toolexec vettool fixtool overlay modfile", exact: true, args: "C", words: "run generate tool install get"}
	d.judge(nil, c, stdin{})
	env, linker := false, false
	for i, w := range c.Words[1:] {
		name, _, given := strings.Cut(strings.TrimLeft(w.Text, "-"), "=")
		option := w.Static && strings.HasPrefix(w.Text, "-")
		switch {
		case env && option && name == "w":
			c.need(i+1, len(c.Words), "changes what go starts")
		case (linker || option && name == "ldflags") && namesLinker(w.Text):
			c.need(i+1, i+2, "names the program that links, or its options")
		}
		env = env || w.Static && w.Text == "env"
		linker = option && name == "ldflags" && !given
	}
}

// namesLinker: flags of go's linker that name another, or hand it more than the usual.
func namesLinker(flags string) bool {
	flags = strings.NewReplacer(`"`, "", "'", "", "=", " ").Replace(flags)
	return strings.Contains(strings.ReplaceAll(flags, "-extldflags -static", ""), "-ext")
}

// cmake: -E is a set of tools, some of which start others; -P is a script. What its
// build files start is its own affair, as a Makefile's is make's.
func cmake(_ *scope, c *Command, _ stdin) {
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		switch {
		case !w.known():
			c.need(i, i+1, "may be an option that starts a program")
		case w.Text == "-E" && i+1 < len(c.Words) && c.Words[i+1].Static && has("copy copy_directory copy_if_different echo cat compare_files make_directory md5sum sha256sum rm sleep touch true", c.Words[i+1].Text):
			return
		case strings.HasPrefix(w.Text, "-D"):
			at, set := i, w.Text[2:]
			if set == "" && i+1 < len(c.Words) {
				i++
				set = c.Words[i].Text
			}
			if name, _, _ := strings.Cut(set, "="); !c.Words[i].Static || !cmakeNames(name) {
				c.need(at, i+1, "sets a variable of cmake, which may name a program")
			}
		case strings.HasPrefix(w.Text, "--toolchain") || strings.HasPrefix(w.Text, "--preset"):
			c.need(i, min(i+2, len(c.Words)), "reads a file that may name programs")
		case w.Text == "-E" || strings.HasPrefix(w.Text, "-P") || strings.HasPrefix(w.Text, "-C"):
			c.need(i, min(i+2, len(c.Words)), "starts a program, or runs a script")
		}
	}
}

// cmakeNames are variables of cmake that name no program and no file with a script.
func cmakeNames(name string) bool {
	name, _, _ = strings.Cut(name, ":") // its type
	return has("CMAKE_BUILD_TYPE CMAKE_INSTALL_PREFIX CMAKE_EXPORT_COMPILE_COMMANDS CMAKE_C_STANDARD CMAKE_CXX_STANDARD CMAKE_POSITION_INDEPENDENT_CODE "+
		"CMAKE_VERBOSE_MAKEFILE BUILD_SHARED_LIBS BUILD_TESTING", name)
}

// awk: the program text must not start anything.
func awk(_ *scope, c *Command, _ stdin) {
	seen := false
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		switch {
		case seen:
			return // awk reads no option behind its program
		case !w.known():
			c.need(i, i+1, "may be a program of awk's")
			return
		case w.Static && (w.Text == "-v" || w.Text == "-F" || w.Text == "--assign" || w.Text == "--field-separator") && !seen:
			if i++; i < len(c.Words) && !c.Words[i].one() {
				c.need(i, i+1, "may become a program of awk's")
				return
			}
		case w.Static && !seen && len(w.Text) > 2 && (strings.HasPrefix(w.Text, "-v") || strings.HasPrefix(w.Text, "-F")):
		case w.Static && !seen && w.Text == "--":
		case w.Static && !seen && strings.HasPrefix(w.Text, "-"):
			c.need(i, min(i+2, len(c.Words)), "loads a program of awk's")
			seen = w.Text != "--version"
		case !seen:
			seen = true
			if !w.Static || !awkIsQuiet(w.Text) {
				c.need(i, i+1, "may start programs")
			}
		}
	}
}

// awkIsQuiet: the program has none of awk's ways to start another: system, a
// pipe, getline from one, and gawk's extensions.
func awkIsQuiet(p string) bool {
	if strings.Contains(p, "system") || strings.Contains(p, "getline") || strings.Contains(p, "@") || strings.Contains(p, `\`+"\n") {
		return false
	}
	if !strings.Contains(strings.ReplaceAll(p, "||", ""), "|") {
		return true
	}
	// A | in a string or in a pattern is no pipe. Where / stands for division or
	// begins a pattern is hard to tell in awk: only the plain places count.
	last := byte('\n') // the last character that is no blank
	for i := 0; i < len(p); i++ {
		switch ch := p[i]; ch {
		case ' ', '\t':
			continue
		case '"':
			for i++; i < len(p) && p[i] != '"'; i++ {
				if p[i] == '\\' {
					i++
				}
			}
		case '/':
			if strings.IndexByte("\n{(;,~!&|", last) < 0 {
				return false
			}
			for i++; i < len(p) && p[i] != '/'; i++ {
				switch p[i] {
				case '\\':
					i++
				case '[', '\n':
					return false // [/] ends the pattern in some awks
				}
			}
		case '#':
			return false
		case '|':
			if i+1 >= len(p) || p[i+1] != '|' {
				return false
			}
			i++
		}
		if i < len(p) {
			last = p[i]
		}
	}
	return true
}
