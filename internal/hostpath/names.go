// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// plain makes spellings of a name equal that some file system takes for one: without
// regard to case, composed and decomposed (APFS, ext4 with casefold, ZFS), with invisible
// characters (HFS+), and with what Windows leaves out at the end. Where there is doubt
// names are equal.
func plain(name string) string {
	name, _, _ = strings.Cut(name, ":") // a stream of NTFS
	name = strings.TrimRight(name, " .")
	if isLowerASCII(name) {
		return name
	}
	name = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return r
	}, name)
	return strings.TrimRight(fold(norm.NFKD.String(name)), " .")
}

func isLowerASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || 'A' <= r && r <= 'Z' })
}

// RunsByName finds the first part of a slash-separated path by whose name a
// program of the host runs something: .vscode, .envrc, .git. why is a phrase.
func RunsByName(rel string) (part, why string, ok bool) {
	at := ""
	for name := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, name)
		if IsGit(name) {
			return at, noGit.why, true
		}
		if p, ok := protectedName(at); ok {
			return at, p.why, true
		}
	}
	return "", "", false
}

// AboveProtected says whether certain names are protected in a directory of this name
// alone: .config has .config/mise.
func AboveProtected(name string) bool {
	name = plain(name)
	return slices.ContainsFunc(protectedNames, func(p protected) bool { return strings.HasPrefix(p.name, name+"/") })
}

// IsGit says whether a file system may take the name for .git.
func IsGit(name string) bool {
	name = plain(name)
	return name == ".git" || name == "git~1" // its short name on VFAT and NTFS
}

// IsHead says whether a file system may take the name for HEAD, without which git takes
// no directory for a repository.
func IsHead(name string) bool { return plain(name) == "head" }

// CompletesRepository reports that a new file or directory at the slash-separated
// path rel would make a directory above it one that git takes for a repository. exists
// says whether a path exists, or is about to.
func CompletesRepository(rel string, exists func(rel string) bool) (dir string, ok bool) {
	parts := strings.Split(path.Clean(rel), "/")
	for i, name := range parts {
		dir := path.Join(parts[:i]...)
		has := func(other string) bool { return plain(other) == plain(name) || exists(path.Join(dir, other)) }
		switch plain(name) {
		case "head", "objects", "refs", "commondir":
			if has("HEAD") && (has("objects") && has("refs") || has("commondir")) {
				return path.Join(".", dir), true
			}
		}
	}
	return "", false
}

// Folded is a name as the most forgiving file system compares it: two names with one
// Folded may be one file.
func Folded(name string) string { return plain(name) }
