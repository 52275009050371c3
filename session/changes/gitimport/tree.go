// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// The modes that a tree has.
const (
	modeFile   = "100644"
	modeExec   = "100755"
	modeLink   = "120000"
	modeDir    = "40000"
	modeModule = "160000" // a submodule: the commit is another repository's
)

// treeEntry is a name in a tree.
type treeEntry struct {
	name, mode string
	id         ID
}

func (e *treeEntry) dir() bool { return e.mode == modeDir }

// sortKey is what git sorts a tree by.
func (e *treeEntry) sortKey() string {
	if e.dir() {
		return e.name + "/"
	}
	return e.name
}

const maxName = 255

// parseTree reads a tree, and takes only one that git fsck has nothing against. old takes
// what only older gits wrote, from the host's own repository.
func parseTree(b []byte, old bool) ([]treeEntry, error) {
	var all []treeEntry
	seen := map[string]bool{}
	for len(b) > 0 {
		space, end := bytes.IndexByte(b, ' '), bytes.IndexByte(b, 0)
		if space < 0 || end < space || len(b) < end+1+len(ID{}) {
			return nil, errors.New("a tree is cut short")
		}
		e := treeEntry{mode: string(b[:space]), name: string(b[space+1 : end]), id: ID(b[end+1 : end+1+len(ID{})])}
		b = b[end+1+len(ID{}):]
		if !old {
			if err := e.check(); err != nil {
				return nil, err
			}
			if seen[e.name] {
				return nil, fmt.Errorf("a tree has %q twice", clip(e.name))
			}
			if len(all) > 0 && all[len(all)-1].sortKey() >= e.sortKey() {
				return nil, errors.New("a tree is not in git's order")
			}
		}
		seen[e.name] = true
		all = append(all, e)
	}
	return all, nil
}

func (e *treeEntry) check() error {
	if !slices.Contains([]string{modeFile, modeExec, modeLink, modeDir, modeModule}, e.mode) {
		return fmt.Errorf("a tree has the mode %q", clip(e.mode))
	}
	if e.id == (ID{}) {
		return errors.New("a tree has an id of zeros")
	}
	if err := checkName(e.name); err != nil {
		return err
	}
	if _, ok := special(e.name); ok && e.mode != modeFile && e.mode != modeExec {
		return fmt.Errorf("%q is no file", e.name)
	}
	return nil
}

// checkName takes a name that is a plain one on every system.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.Contains(name, "/"):
		return fmt.Errorf("a tree has the name %q", clip(name))
	case len(name) > maxName:
		return fmt.Errorf("a tree has a name of %d bytes", len(name))
	}
	for part := range strings.SplitSeq(name, `\`) { // which separates on some systems
		if hostpath.IsGit(part) || part == ".." {
			return fmt.Errorf("a tree has the name %q", name)
		}
	}
	return nil
}

// writeTree gives the content of a tree.
func writeTree(all []treeEntry) []byte {
	slices.SortFunc(all, func(a, b treeEntry) int { return strings.Compare(a.sortKey(), b.sortKey()) })
	var b bytes.Buffer
	for _, e := range all {
		fmt.Fprintf(&b, "%s %s\x00", e.mode, e.name)
		b.Write(e.id[:])
	}
	return b.Bytes()
}
