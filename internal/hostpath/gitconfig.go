// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"slices"
	"strings"
)

// gitSetting is one setting of a git configuration file.
type gitSetting struct {
	section string // lower case; "a.b" of the old form [a.b]
	sub     string // of [section "sub"], as it is written
	key     string // lower case
	value   string
}

// name is how git config names the setting.
func (s gitSetting) name() string {
	switch {
	case s.section == "":
		return s.key
	case s.sub == "":
		return s.section + "." + s.key
	}
	return s.section + "." + s.sub + "." + s.key
}

// maxGitConfig bounds a configuration file that is read, in bytes.
const maxGitConfig = 256 << 10

var errGitConfig = errors.New("git would not read it")

// parseGitConfig reads a configuration file by git's rules (config.c). It returns
// what stands before a fault with errGitConfig: git stops there and does nothing.
func parseGitConfig(text []byte) ([]gitSetting, error) {
	p := &gitConfigParser{text: strings.ReplaceAll(strings.TrimPrefix(string(text), "\uFEFF"), "\r\n", "\n")}
	for !p.end() {
		if err := p.item(); err != nil {
			return p.settings, err
		}
	}
	return p.settings, nil
}

type gitConfigParser struct {
	text         string
	at           int
	section, sub string
	settings     []gitSetting
}

func (p *gitConfigParser) end() bool { return p.at >= len(p.text) }

// next is the next byte; the end of the text is a line feed, as for git.
func (p *gitConfigParser) next() byte {
	if p.at++; p.at > len(p.text) {
		return '\n'
	}
	return p.text[p.at-1]
}

func isGitSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isLetter(c byte) bool   { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isKeyByte(c byte) bool  { return isLetter(c) || c >= '0' && c <= '9' || c == '-' }
func lower(c byte) byte {
	if isLetter(c) {
		return c | 0x20
	}
	return c
}

// item reads a comment, the head of a section, or a setting.
func (p *gitConfigParser) item() error {
	switch c := p.next(); {
	case isGitSpace(c):
		return nil
	case c == '#' || c == ';':
		for p.next() != '\n' {
		}
		return nil
	case c == '[':
		return p.head()
	case isLetter(c):
		return p.setting(c)
	}
	return errGitConfig
}

// head reads [section], [section.sub] or [section "sub"].
func (p *gitConfigParser) head() error {
	var section, sub []byte
	for {
		c := p.next()
		switch {
		case c == ']':
			p.section, p.sub = string(section), ""
			return nil
		case c == ' ' || c == '\t':
			for c == ' ' || c == '\t' {
				c = p.next()
			}
			if c != '"' {
				return errGitConfig
			}
			for c = p.next(); c != '"'; c = p.next() {
				if c == '\\' {
					c = p.next()
				}
				if c == '\n' {
					return errGitConfig
				}
				sub = append(sub, c)
			}
			if p.next() != ']' {
				return errGitConfig
			}
			p.section, p.sub = string(section), string(sub)
			return nil
		case !isKeyByte(c) && c != '.':
			return errGitConfig
		}
		section = append(section, lower(c))
	}
}

// setting reads a key, of which first is the first letter, and its value.
func (p *gitConfigParser) setting(first byte) error {
	key := []byte{lower(first)}
	c := p.next()
	for ; isKeyByte(c); c = p.next() {
		key = append(key, lower(c))
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	s := gitSetting{section: p.section, sub: p.sub, key: string(key)}
	switch c {
	case '\n': // a key alone is true
		s.value = "true"
	case '=':
		value, err := p.value()
		if err != nil {
			return err
		}
		s.value = value
	default:
		return errGitConfig
	}
	p.settings = append(p.settings, s)
	return nil
}

// value reads what stands after the sign of equality.
func (p *gitConfigParser) value() (string, error) {
	var out, spaces []byte
	quoted, comment := false, false
	for {
		c := p.next()
		switch {
		case c == '\n':
			if quoted {
				return "", errGitConfig
			}
			return string(out), nil
		case comment:
			continue
		case isGitSpace(c) && !quoted:
			if len(out) > 0 {
				spaces = append(spaces, c)
			}
			continue
		case !quoted && (c == ';' || c == '#'):
			comment = true
			continue
		case c == '"':
			quoted = !quoted
			out, spaces = append(out, spaces...), spaces[:0]
			continue
		case c == '\\':
			switch c = p.next(); c {
			case '\n':
				continue
			case 't':
				c = '\t'
			case 'n':
				c = '\n'
			case 'b':
				c = '\b'
			case '\\', '"':
			default:
				return "", errGitConfig
			}
		}
		out, spaces = append(append(out, spaces...), c), spaces[:0]
	}
}

// plainGitKeys are the settings of a repository that make git run nothing and take
// nothing from elsewhere: those that git itself writes, and what people set besides.
// All others are not plain, whatever they are.
var plainGitKeys = map[string][]string{
	"core": {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode", "symlinks", "autocrlf", "eol", "safecrlf",
		"quotepath", "abbrev", "compression", "untrackedcache", "preloadindex", "splitindex", "sharedrepository", "longpaths", "commitgraph", "commentchar", "protecthfs", "protectntfs"},
	"extensions": {"objectformat", "partialclone", "worktreeconfig", "refstorage", "relativeworktrees", "noop", "preciousobjects", "compatobjectformat"},
	"remote":     {"url", "pushurl", "fetch", "push", "tagopt", "mirror", "prune", "prunetags", "promisor", "partialclonefilter", "gh-resolved"},
	"branch":     {"remote", "merge", "rebase", "pushremote", "description", "vscode-merge-base", "gh-merge-base"},
	"submodule":  {"url", "active", "branch", "ignore", "fetchrecursesubmodules", "recurse", "shallow"},
	"user":       {"name", "email", "useconfigonly"},
	"author":     {"name", "email"},
	"committer":  {"name", "email"},
	"init":       {"defaultbranch"},
	"pull":       {"rebase", "ff"},
	"push":       {"default", "autosetupremote", "followtags"},
	"fetch":      {"prune", "prunetags"},
	"merge":      {"conflictstyle", "ff"},
	"rebase":     {"autosquash", "autostash"},
	"rerere":     {"enabled"},
	"gc":         {"auto"},
	"commit":     {"gpgsign"},
	"tag":        {"gpgsign"},
	"advice":     nil, // any
	"color":      nil,
	"lfs":        {"repositoryformatversion"},
}

// notPlain names what in a configuration may make git run something, or take
// something from elsewhere: the first three. moduleDir says that it is that of a
// submodule, which has core.worktree.
func notPlain(text []byte, moduleDir bool) []string {
	settings, err := parseGitConfig(text)
	if err != nil || slices.ContainsFunc(text, func(c byte) bool { return c < ' ' && c != '\t' && c != '\n' && c != '\r' }) {
		return []string{"a line that git does not read"}
	}
	var out []string
	for _, s := range settings {
		if s.isPlain() || moduleDir && s.name() == "core.worktree" {
			continue
		}
		if name := printable(s.name()); len(out) < 3 && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// isPlain says whether a setting is one of plainGitKeys, with a value that runs nothing.
func (s gitSetting) isPlain() bool {
	keys, ok := plainGitKeys[s.section]
	if !ok || keys != nil && !slices.Contains(keys, s.key) {
		return false
	}
	if s.key == "url" || s.key == "pushurl" {
		// "ext::sh -c …" names a program.
		return !strings.Contains(s.value, "::") && !strings.HasPrefix(s.value, "-")
	}
	return true
}

// programKeys are the last parts of settings that are lines of commands.
var programKeys = []string{"askpass", "clean", "cmd", "command", "difffilter", "driver", "editor", "external", "fsmonitor", "gitproxy",
	"helper", "packobjectshook", "pager", "process", "program", "smudge", "sshcommand", "textconv"}

// isProgram says whether the value begins with the name of a program that git runs by
// itself. An alias is asked for by name.
func (s gitSetting) isProgram() bool {
	return s.section == "pager" || s.section != "alias" && slices.Contains(programKeys, s.key)
}

// gitTarget is a file or directory that a configuration names.
type gitTarget struct {
	path string // as it is written
	// include says that it is more configuration; its path starts from the file's own
	// directory, all others from the top of the working tree.
	include bool
	dir     bool // a directory of hooks
	// command says that it is a word of a command line: it may be no path at all.
	command bool
	// program says that it is what git runs, even where it is missing.
	program bool
	// gitlink says that it is the .git of a submodule.
	gitlink bool
	// way says that it is a directory that a path leads through.
	way     bool
	setting string
}

// namedEverywhere is what a configuration names that counts in all repositories, by a
// path from the top of each working tree.
type namedEverywhere struct {
	target gitTarget
	why    string
}

// homeIn writes the home folder as git does in paths. A shell reads the lines of commands.
var homeIn = strings.NewReplacer("${HOME}/", "~/", "$HOME/", "~/")

// gitTargets are the paths that settings make git run or read.
func gitTargets(settings []gitSetting) (out []gitTarget) {
	for _, s := range settings {
		switch name := s.section + "." + s.key; {
		case s.key == "path" && (s.section == "include" || s.section == "includeif"):
			out = append(out, gitTarget{path: s.value, include: true, setting: s.name()})
		case name == "core.hookspath" || name == "init.templatedir":
			out = append(out, gitTarget{path: s.value, dir: true, setting: s.name()})
		case name != "core.worktree" && !s.isPlain():
			words := strings.FieldsFunc(homeIn.Replace(s.value), func(r rune) bool { return strings.ContainsRune(" \t\n'\"`;|&()<>!=$", r) })
			for i, word := range words {
				// A first word without a slash is looked for in PATH; others may be scripts.
				if i > 0 || strings.Contains(word, "/") {
					out = append(out, gitTarget{path: word, command: true, program: i == 0 && s.isProgram(), setting: s.name()})
				}
			}
		}
	}
	return out
}

// GitExtensions gives the extensions that a repository's config names, in lower case. A
// config that git would not read is an error, and one that includes another is read
// without it: git takes extensions from the file itself alone.
func GitExtensions(config []byte) (map[string]string, error) {
	settings, err := parseGitConfig(config)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, s := range settings {
		if s.section == "extensions" && s.sub == "" {
			all[s.key] = strings.ToLower(s.value)
		}
	}
	return all, nil
}
