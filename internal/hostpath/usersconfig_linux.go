// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// usersConfigs are the files of git's configuration that belong to no repository: the
// system's, and those of who has caisson's environment.
func usersConfigs() (out []string) {
	home := os.Getenv("HOME")
	for _, name := range []string{
		"/etc/gitconfig", "/usr/local/etc/gitconfig", os.Getenv("GIT_CONFIG_SYSTEM"),
		path.Join(os.Getenv("XDG_CONFIG_HOME"), "git/config"), path.Join(home, ".config/git/config"), path.Join(home, ".gitconfig"), os.Getenv("GIT_CONFIG_GLOBAL"),
	} {
		if path.IsAbs(name) {
			out = append(out, name)
		}
	}
	return out
}

// variables are settings that git takes from the environment.
var variables = map[string]gitSetting{
	"GIT_ASKPASS":         {section: "core", key: "askpass"},
	"GIT_EDITOR":          {section: "core", key: "editor"},
	"GIT_EXTERNAL_DIFF":   {section: "diff", key: "external"},
	"GIT_PAGER":           {section: "core", key: "pager"},
	"GIT_PROXY_COMMAND":   {section: "core", key: "gitproxy"},
	"GIT_SEQUENCE_EDITOR": {section: "sequence", key: "editor"},
	"GIT_SSH_COMMAND":     {section: "core", key: "sshcommand"},
	"GIT_TEMPLATE_DIR":    {section: "init", key: "templatedir"},
}

// environmentSettings are these, and those that GIT_CONFIG_COUNT counts.
func environmentSettings() (out []gitSetting) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if s := variables[name]; os.Getenv(name) != "" {
			s.value = os.Getenv(name)
			out = append(out, s)
		}
	}
	n, _ := strconv.Atoi(os.Getenv("GIT_CONFIG_COUNT"))
	for i := range min(n, maxIncluded) {
		name, value := os.Getenv(fmt.Sprintf("GIT_CONFIG_KEY_%d", i)), os.Getenv(fmt.Sprintf("GIT_CONFIG_VALUE_%d", i))
		first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
		if first < 0 {
			continue
		}
		s := gitSetting{section: strings.ToLower(name[:first]), key: strings.ToLower(name[last+1:]), value: value}
		if first < last {
			s.sub = name[first+1 : last]
		}
		out = append(out, s)
	}
	return out
}

// configuredByUser keeps what these name in the tree, and those that lie in it.
func (s *scan) configuredByUser() error {
	// A file that is included from here has an absolute path, or git takes it for a fault.
	if err := s.keepTargets(environmentSettings(), "the environment", "/", "", 0); err != nil {
		return err
	}
	for _, name := range usersConfigs() {
		at, _ := s.locate("/", name)
		if !path.IsAbs(at) {
			if err := s.keepTarget(at, gitTarget{}, "git reads it in every repository"); err != nil {
				return err
			}
		}
		if _, err := s.configuredBy(name, "", 0); err != nil {
			return err
		}
	}
	return nil
}

// keepEverywhere keeps what these name in the working tree of a repository.
func (s *scan) keepEverywhere(tree string) error {
	for _, n := range s.everywhere {
		if err := s.keepWay(tree, n.target, n.why); err != nil {
			return err
		}
		if at, ok := s.inside(tree, n.target.path); ok {
			if err := s.keepTarget(at, n.target, n.why); err != nil {
				return err
			}
		}
	}
	return nil
}

// namesEverywhere notes what a configuration names in each working tree. Of a command
// line only words with a slash count: others are branches and commands in people's
// aliases, and names of files by chance.
func (s *scan) namesEverywhere(t gitTarget, why string) {
	if !t.command || strings.Contains(t.path, "/") {
		s.everywhere = append(s.everywhere, namedEverywhere{t, why})
	}
}

// isRelative says whether the path starts from the top of a working tree.
func (t gitTarget) isRelative() bool { return !path.IsAbs(t.path) && !strings.HasPrefix(t.path, "~") }
