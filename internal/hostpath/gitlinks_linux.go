// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// gitlinks keeps repositories from coming into being where an index has a submodule
// that is not checked out: git looks into one there.
func (s *scan) gitlinks(gitDir string, hash int, tree string, read func(string) ([]byte, error)) error {
	for name, n := path.Join(gitDir, "index"), 0; name != "" && n < 2; n++ {
		b, err := read(name)
		if missing(err) || errors.Is(err, unix.EACCES) && path.IsAbs(gitDir) {
			return nil
		}
		var x *gitIndex
		if err == nil {
			x, err = parseGitIndex(b, hash)
		}
		if err != nil {
			return s.unguarded(".", "which submodules "+printable(name)+" has is unknown: "+err.Error())
		}
		for _, link := range x.gitlinks {
			at, ok := s.inside(tree, path.Join(link, ".git"))
			if !ok || path.IsAbs(link) || link == "" {
				continue
			}
			if err := s.keepTarget(at, gitTarget{dir: true, gitlink: true}, "a submodule in "+printable(name)+" names it"); err != nil {
				return err
			}
		}
		if name = ""; x.shared != "" {
			name = path.Join(gitDir, x.shared)
		}
	}
	return nil
}

func (s *scan) readIndex(name string) ([]byte, error) {
	return readSmall(int(s.root.File.Fd()), name, maxGitIndex)
}

// hashLength is the length of the names of a repository's objects.
func hashLength(settings []gitSetting, before int) int {
	for _, set := range settings {
		if set.name() == "extensions.objectformat" && strings.EqualFold(set.value, "sha256") {
			return 32
		}
	}
	return before
}
