// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Bounds of a layer. They hold for what is told of it; content is bounded by the store.
const (
	maxNodes     = 500_000  // files, directories, links and removals
	maxNames     = 64 << 20 // bytes of all paths
	maxDepth     = 256      // directories inside each other
	maxPath      = 4096
	maxComponent = 255
	maxSkipped   = 50 // paths of what is skipped that are kept
)

// node is a path of the layer.
type node struct {
	kind     nodeKind
	mode     uint32
	size     int64
	sha      string
	link     string
	opaque   bool   // what the host has below it is hidden
	redirect string // where the host has it: a path from the top after a slash, or a name
	children map[string]*node
}

type nodeKind int

const (
	nodeImplied nodeKind = iota // a directory that is named by what is in it alone
	nodeDir
	nodeFile
	nodeLink
	nodeRemoved
	nodeLeft // it is not kept: excluded, ignored, no file; or a .git
)

func (n *node) isDir() bool { return n.kind == nodeImplied || n.kind == nodeDir }

// layer is what was read of a layer.
type layer struct {
	top      *node
	nodes    int
	names    int
	filter   *filter
	contents *contents
}

// filter says of paths whether they are kept, and counts those that are not.
type filter struct {
	exclude      func(path string) bool
	ignores      *ignores // nil: nothing is ignored
	ignored      int
	skipped      int
	skippedPaths []string
	repositories map[string]int // what was changed in each .git
}

// keeps says whether a path is kept, and counts it where it is not.
func (f *filter) keeps(at string, dir bool) bool {
	if git, ok := gitIn(at); ok {
		if !dir || git != at {
			f.repositories[git]++
		}
		return false
	}
	if f.excluded(at) {
		return false
	}
	if f.ignores != nil && f.ignores.match(at, dir) && !f.ignores.tracked(at, dir) {
		if !dir {
			f.ignored++
		}
		return false
	}
	return true
}

// takes says whether what the layer has at a path is taken, and counts it where it is
// not. Of the workspace's own repository all is.
func (f *filter) takes(at string) bool {
	return f.keeps(at, false) || ownGit(at) && !f.excluded(at)
}

// ownGit says that a path is the workspace's own repository or in it, under the one
// spelling that git gives it.
func ownGit(at string) bool { return at == gitDir || strings.HasPrefix(at, gitDir+"/") }

const gitDir = ".git"

// excluded says that a path, or a directory above it, is no part of the workspace.
func (f *filter) excluded(at string) bool {
	if f.exclude == nil {
		return false
	}
	for ; at != "."; at = path.Dir(at) {
		if f.exclude(at) {
			return true
		}
	}
	return false
}

// never says that a path is neither kept nor counted as ignored.
func (f *filter) never(at string) bool {
	_, git := gitIn(at)
	return git || f.excluded(at)
}

func (f *filter) skip(at string) {
	f.skipped++
	if len(f.skippedPaths) < maxSkipped {
		f.skippedPaths = append(f.skippedPaths, at)
	}
}

// malformed refuses a layer.
func malformed(name, format string, args ...any) error {
	return &sandbox.Error{Op: "read what was changed", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf("the layer is refused: %s ", Shown(sandbox.Clip(name, 200))) + fmt.Sprintf(format, args...),
		Hint: "nothing of it is kept; code inside may have made it so"}
}

// readLayer reads a layer and puts the contents of its files into the store.
func readLayer(ctx context.Context, r io.Reader, f *filter, c *contents) (*layer, error) {
	l := &layer{top: &node{children: map[string]*node{}}, filter: f, contents: c}
	tr := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, &sandbox.Error{Op: "read what was changed", Kind: sandbox.ErrInvalid, Problem: "the layer cannot be read", Hint: "nothing of it is kept", Cause: err}
		}
		if err := l.take(hdr, tr); err != nil {
			return nil, err
		}
	}
}

// take takes one entry of the stream.
func (l *layer) take(hdr *tar.Header, r io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return malformed("a global header", "is in it")
	}
	name, err := cleanName(hdr.Name, hdr.Typeflag == tar.TypeDir)
	if err != nil {
		return err
	}
	if l.nodes++; l.nodes > maxNodes {
		return malformed(name, "is one of more than %d entries", maxNodes)
	}
	if l.names += len(name); l.names > maxNames {
		return malformed(name, "is one of too many long names")
	}
	if name == "" {
		return l.takeTop(hdr)
	}
	n, err := l.place(name, hdr.Typeflag == tar.TypeDir)
	if err != nil {
		return err
	}
	switch hdr.Typeflag {
	case tar.TypeDir:
		return l.takeDir(n, name, hdr)
	case tar.TypeReg, tar.TypeGNUSparse:
		return l.takeFile(n, name, hdr, r)
	case tar.TypeSymlink:
		n.kind, n.link = nodeLink, hdr.Linkname
		if n.link == "" || len(n.link) > maxPath || strings.ContainsRune(n.link, 0) {
			return malformed(name, "is a link to something that is no path")
		}
		if l.names += len(n.link); l.names > maxNames {
			return malformed(name, "is one of too many long links")
		}
	case tar.TypeLink:
		return l.takeHardLink(n, name, hdr)
	case tar.TypeChar:
		if hdr.Devmajor == 0 && hdr.Devminor == 0 {
			n.kind = nodeRemoved
			return nil
		}
		fallthrough
	default:
		n.kind = nodeLeft
		l.filter.skip(name)
		return nil
	}
	if !l.filter.takes(name) {
		n.kind = nodeLeft
	}
	return nil
}

func (l *layer) takeTop(hdr *tar.Header) error {
	if hdr.Typeflag != tar.TypeDir || l.top.kind == nodeDir {
		return malformed("the top", "is there twice, or is no directory")
	}
	return l.attributes(l.top, ".", hdr)
}

func (l *layer) takeDir(n *node, name string, hdr *tar.Header) error {
	if n.kind != nodeImplied {
		return malformed(name, "is there twice")
	}
	// A .git or an ignored directory is told of by what is in it.
	if _, git := gitIn(name); git {
		l.filter.keeps(name, true)
	}
	return l.attributes(n, name, hdr)
}

// attributes takes a directory's mode and what the overlay says of it.
func (l *layer) attributes(n *node, name string, hdr *tar.Header) error {
	n.kind, n.mode = nodeDir, uint32(hdr.Mode)&0o777
	opaque, redirect := overlay(hdr, "opaque"), overlay(hdr, "redirect")
	switch {
	case opaque != "" && opaque != "y", overlay(hdr, "metacopy") != "":
		return malformed(name, "has an overlay attribute that is not known")
	case redirect == "":
	case name == ".":
		return malformed(name, "was renamed")
	case strings.HasPrefix(redirect, "/"):
		to, err := cleanName(strings.TrimPrefix(redirect, "/"), false)
		if err != nil || to == "" {
			return malformed(name, "was renamed from something that is no path")
		}
	case len(redirect) > maxComponent || strings.ContainsAny(redirect, "/\x00") || redirect == "." || redirect == "..":
		return malformed(name, "was renamed from something that is no name")
	}
	if l.names += len(redirect); l.names > maxNames {
		return malformed(name, "was renamed from one of too many long names")
	}
	n.opaque, n.redirect = opaque == "y", redirect
	return nil
}

// overlay gives an overlay attribute.
func overlay(hdr *tar.Header, name string) string {
	if v := hdr.PAXRecords["SCHILY.xattr.trusted.overlay."+name]; v != "" {
		return v
	}
	return hdr.PAXRecords["SCHILY.xattr.user.overlay."+name]
}

func (l *layer) takeFile(n *node, name string, hdr *tar.Header, r io.Reader) error {
	for _, attribute := range []string{"metacopy", "redirect", "whiteout"} {
		if overlay(hdr, attribute) != "" {
			return malformed(name, "is a file whose content is elsewhere")
		}
	}
	if !l.filter.takes(name) {
		n.kind = nodeLeft
		return nil
	}
	sha, size, err := l.contents.add(r)
	if err != nil {
		return err
	}
	*n = node{kind: nodeFile, mode: uint32(hdr.Mode) & 0o777, size: size, sha: sha}
	return nil
}

// takeHardLink takes a second name of a file: it is a file with the same content.
func (l *layer) takeHardLink(n *node, name string, hdr *tar.Header) error {
	first, err := cleanName(hdr.Linkname, false)
	if err != nil || first == "" {
		return malformed(name, "is a second name of something that is no path")
	}
	of := l.find(first)
	switch {
	case of == nil || of == n:
		return malformed(name, "is a second name of what is not there")
	case of.isDir():
		return malformed(name, "is a second name of a directory")
	case !l.filter.takes(name):
		n.kind = nodeLeft
	case of.kind == nodeLeft:
		n.kind = nodeLeft
		l.filter.skip(name)
	default:
		*n = *of
	}
	return nil
}

// find finds a path that was read.
func (l *layer) find(name string) *node {
	n := l.top
	for part := range strings.SplitSeq(name, "/") {
		if n = n.children[part]; n == nil {
			return nil
		}
	}
	return n
}

// place makes the node of a path, and of the directories above it that were not named.
func (l *layer) place(name string, dir bool) (*node, error) {
	n := l.top
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if !n.isDir() {
			return nil, malformed(name, "is below something that is no directory")
		}
		if n.children == nil {
			n.children = map[string]*node{}
		}
		next, last := n.children[part], i == len(parts)-1
		switch {
		case next == nil:
			if !last {
				l.nodes++
			}
			next = &node{}
			n.children[part] = next
		case last && !(dir && next.kind == nodeImplied):
			return nil, malformed(name, "is there twice")
		}
		n = next
	}
	return n, nil
}

// cleanName is a name of the stream as a path relative to the top, which is "".
func cleanName(name string, dir bool) (string, error) {
	given := name
	if name == "." || name == "./" {
		return "", nil
	}
	name = strings.TrimPrefix(name, "./")
	if dir {
		name = strings.TrimSuffix(name, "/")
	}
	if len(name) > maxPath {
		return "", malformed(given, "is a name of %d bytes", len(name))
	}
	if strings.ContainsRune(name, 0) {
		return "", malformed(given, "is no name")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxComponent {
			return "", malformed(given, "is no name below the workspace")
		}
		depth++
	}
	if depth > maxDepth {
		return "", malformed(given, "is %d directories deep", depth)
	}
	return name, nil
}
