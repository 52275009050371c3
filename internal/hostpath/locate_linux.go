// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"os"
	"os/user"
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

// locate is inside for all of the host: a path outside of the tree is absolute, and as
// it was written: what ".." leads to after a link is the kernel's to say.
func (s *scan) locate(from, name string) (string, bool) {
	name, ok := fromHome(name)
	if !ok || name == "" || strings.ContainsRune(name, 0) {
		return "", false
	}
	if !path.IsAbs(name) {
		if at := path.Join(from, name); filepath.IsLocal(at) {
			return at, true
		}
		name = from + "/" + name
	}
	if !path.IsAbs(name) {
		name = s.root.Real + "/" + name
	}
	if rel, ok := s.leadsIn(name); ok {
		return rel, true
	}
	return name, true
}

// fromHome is a path of which git takes the beginning from the user's home folder; not
// ok is one that it does not know.
func fromHome(name string) (string, bool) {
	name = strings.TrimPrefix(name, ":(optional)")
	who, rest, _ := strings.Cut(name, "/")
	if !strings.HasPrefix(who, "~") {
		return name, true
	}
	home := os.Getenv("HOME")
	if who != "~" {
		u, err := user.Lookup(who[1:])
		if err != nil {
			return "", false
		}
		home = u.HomeDir
	}
	return home + "/" + rest, path.IsAbs(home)
}

// leftBehind are the beginnings of a path that ".." leads out of again. Who puts a link
// there has the path lead elsewhere.
func leftBehind(name string) (out []string) {
	parts := strings.Split(name, "/")
	for i := 1; i < len(parts); i++ {
		if parts[i] == ".." && parts[i-1] != ".." && parts[i-1] != "." && parts[i-1] != "" {
			out = append(out, strings.Join(parts[:i], "/"))
		}
	}
	return out
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
