// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"os"
	"path"
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

// configuredByUser keeps what these name in the tree, and those that lie in it.
func (s *scan) configuredByUser() error {
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
