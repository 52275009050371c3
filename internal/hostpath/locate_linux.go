// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path may lead through, as for the kernel.
const maxLinks = 40

// inside is a path of the tree that a configuration names, absolute or from a
// directory, which is one of the tree or absolute; not ok is one outside.
func (s *scan) inside(from, name string) (string, bool) {
	at, ok := s.locate(from, name)
	return at, ok && !path.IsAbs(at)
}

// locate is inside for all of the host: a path outside of the tree is absolute.
func (s *scan) locate(from, name string) (string, bool) {
	if rest, ok := strings.CutPrefix(name, "~/"); ok { // git takes it from HOME
		if home := os.Getenv("HOME"); path.IsAbs(home) {
			name = path.Join(home, rest)
		}
	}
	if strings.HasPrefix(name, "~") || name == "" || strings.ContainsRune(name, 0) {
		return "", false
	}
	at := absoluteFrom(from, name)
	if filepath.IsLocal(at) {
		return at, true
	}
	at = absoluteFrom(s.root.Real, at)
	if rel, err := filepath.Rel(s.root.Real, at); err == nil && filepath.IsLocal(rel) {
		return rel, true
	}
	if rel, ok := s.leadsIn(at); ok {
		return rel, true
	}
	return at, true
}

// leadsIn follows an absolute path until it comes to the tree, which it knows by its
// inode: through links, and by other names of the directories above.
func (s *scan) leadsIn(at string) (string, bool) {
	dir, rest := "/", strings.Split(at, "/")
	for links := 0; ; {
		var st unix.Stat_t
		if rel := path.Join(rest...); unix.Lstat(dir, &st) == nil && (id{st.Dev, st.Ino}) == (id{s.root.Dev, s.root.Ino}) && (rel == "" || filepath.IsLocal(rel)) {
			return path.Join(".", rel), true
		}
		if len(rest) == 0 {
			return "", false
		}
		next := path.Join(dir, rest[0]) // dir has no links in it: .. is what is above
		rest = rest[1:]
		target, err := os.Readlink(next)
		switch {
		case err != nil:
			dir = next
			continue
		case path.IsAbs(target):
			dir = "/"
		}
		if links++; links > maxLinks {
			return "", false
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
}

func absoluteFrom(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}
