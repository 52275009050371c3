// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// below is where a path lies in a directory: by its name, or because a link on the way,
// which lies outside, leads there.
func below(dir, name string) (string, bool) {
	if rel, err := filepath.Rel(dir, name); err == nil && filepath.IsLocal(rel) {
		return rel, true
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", false
	}
	parts := strings.Split(filepath.ToSlash(name), "/")
	for i := 1; i <= len(parts); i++ {
		real, err := filepath.EvalSymlinks("/" + path.Join(parts[:i]...))
		if err != nil {
			return "", false // it is made, through no link
		}
		if rel, err := filepath.Rel(dir, real); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(rel, filepath.Join(parts[i:]...)), true
		}
	}
	return "", false
}

// openBelowOrMake opens the directory rel below top, and makes what is missing of it,
// through no link.
func openBelowOrMake(top *os.Root, rel string) (*os.Root, error) {
	at, err := top.OpenRoot(".")
	for part := range strings.SplitSeq(rel, "/") {
		if err != nil || part == "." {
			break
		}
		var next *os.Root
		next, err = openOrMake(at, part)
		at.Close()
		at = next
	}
	return at, err
}

// openOrMake opens the directory of a name, and makes it when it is missing. A link is
// syscall.ENOTDIR.
func openOrMake(in *os.Root, name string) (*os.Root, error) {
	if err := in.Mkdir(name, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	info, err := in.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, syscall.ENOTDIR
	}
	dir, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if now, err := dir.Stat("."); err != nil || !os.SameFile(info, now) {
		dir.Close()
		return nil, syscall.ENOTDIR // something took its place
	}
	return dir, nil
}

// literal is the part of a pattern that holds no wildcard, up to its last
// slash: out/ of out/*.png. Files land without it.
func literal(pattern string) string {
	end := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '/':
			end = i + 1
		case '*', '?', '\\', '[':
			return pattern[:end]
		}
	}
	return pattern[:end]
}

func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

// namesHidden says whether a component of the pattern begins with a dot, as a
// shell's would have to.
func namesHidden(pattern string) bool { return isHidden(pattern) }
