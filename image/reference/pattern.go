// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// A pattern stands for the images of a registry that an operator allows: a
// reference in which * means any characters but / within a component, and **,
// a component of its own, any number of them. It is compared with the one form
// of a reference. A pattern without tag and digest allows all of a repository's
// images. One with a tag allows that tag alone: a digest beside a tag is what
// counts when the image is pulled, and could be any. One with a digest allows
// that digest, under any tag. One that begins with template: is for templates of that
// name, with or without a tag.

// CheckPattern refuses what cannot match anything.
func CheckPattern(p string) error {
	if strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }) || p == "" || len(p) > maxLength {
		return bad(p, "it is empty, too long, or holds spaces or control characters")
	}
	if IsPath(p) || strings.HasPrefix(p, "oci:") || strings.HasPrefix(p, "docker-archive:") {
		return bad(p, "a pattern is for images of registries; a file or directory is named by image")
	}
	if rest, ok := strings.CutPrefix(p, templatePrefix); ok {
		if strings.Trim(rest, letter+"._-*:") != "" || rest == "" || strings.Count(rest, ":") > 1 {
			return bad(p, "write it as template:NAME or template:NAME:TAG; * stands for any characters")
		}
		return nil
	}
	repo, tag, digest := cut(p)
	if strings.Contains(repo, ":") && !strings.Contains(repo, "/") || strings.HasPrefix(repo, "/") || strings.HasSuffix(repo, "/") || strings.Contains(repo, "//") {
		return bad(p, "the registry or the repository is missing")
	}
	if strings.Trim(repo, letter+"._-/*:[]") != "" || strings.Trim(tag, letter+"._-*") != "" {
		return bad(p, "it holds a character that no reference has")
	}
	if digest != "" && !isDigest(digest) {
		return bad(p, "after @ stands sha256: and 64 hex digits")
	}
	return nil
}

// Match says whether the pattern p allows r.
func Match(p string, r Ref) bool {
	if CheckPattern(p) != nil {
		return false
	}
	if rest, ok := strings.CutPrefix(p, templatePrefix); ok {
		name, tag, tagged := strings.Cut(rest, ":")
		return r.Kind == Template && sandbox.Matches(name, r.Name) && (!tagged || sandbox.Matches(tag, r.Tag))
	}
	if r.Kind != Registry {
		return false
	}
	repo, tag, digest := cut(p)
	switch {
	case digest != "":
		if digest != r.Digest {
			return false
		}
	case tag != "" && (r.Digest != "" || !sandbox.Matches(tag, r.Tag)):
		return false
	}
	return components(full(repo), strings.Split(r.Host+"/"+r.Repository, "/"))
}

// cut takes a pattern apart.
func cut(p string) (repo, tag, digest string) {
	repo, digest, _ = strings.Cut(p, "@")
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo, tag = repo[:i], repo[i+1:]
	}
	return repo, tag, digest
}

// full adds what is understood, as for a reference.
func full(repo string) []string {
	parts := strings.Split(repo, "/")
	first := parts[0]
	if len(parts) == 1 && first != "**" {
		return []string{"docker.io", "library", first}
	}
	if first != "**" && !strings.ContainsAny(first, ".:") && first != "localhost" && first != "*" {
		return append([]string{"docker.io"}, parts...)
	}
	return parts
}

// components matches whole components; ** takes any number, and * any characters of one.
func components(p, s []string) bool {
	for len(p) > 0 {
		if p[0] == "**" {
			for i := range len(s) + 1 {
				if components(p[1:], s[i:]) {
					return true
				}
			}
			return false
		}
		if len(s) == 0 || !sandbox.Matches(p[0], s[0]) {
			return false
		}
		p, s = p[1:], s[1:]
	}
	return len(s) == 0
}
