// SPDX-License-Identifier: Apache-2.0

// Package reference reads the names of container images and writes them in
// one way only, so that they can be compared. It does no I/O.
//
//	python, python:3.14            docker.io/library/python:latest, …:3.14
//	ghcr.io/acme/tool:1@sha256:…   a registry's, with the digest it must have
//	./image.tar, /srv/images/app   a file or directory of this host
//	oci:DIR[:NAME]                 an OCI image layout, and which image of it
//	docker-archive:FILE[:NAME]     what docker save wrote, and which image of it
//	template:NAME[:TAG]            a template that was built here
//
// What begins with /, ./ or ../ is a path: a file is an archive, a directory
// with a file oci-layout is a layout, another directory is the root itself.
package reference

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Kind is where an image is.
type Kind int

// The kinds of reference.
const (
	Registry Kind = iota
	Path          // a path whose object tells what it is
	Layout
	Archive
	Template // made here, by caisson template build
)

// Ref is a reference in its one form.
type Ref struct {
	Kind Kind

	Host       string // registry: "docker.io", "localhost:5000"
	Repository string // "library/python"
	Tag        string // "latest" where neither tag nor digest is said
	Digest     string // "sha256:…" or empty

	Path string // on this host, as written
	Name string // of the image in a layout or archive, which may be empty; of a template
}

// most is how long a reference may be.
const maxLength = 4096

// Parse reads a reference.
func Parse(s string) (Ref, error) {
	switch {
	case s == "" || len(s) > maxLength:
		return Ref{}, bad(s, "it is empty or too long")
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return Ref{}, bad(s, "it holds a control character or is not UTF-8")
	case IsPath(s):
		return Ref{Kind: Path, Path: s}, nil
	}
	if rest, ok := strings.CutPrefix(s, templatePrefix); ok {
		return template(s, rest)
	}
	for prefix, kind := range map[string]Kind{"oci:": Layout, "docker-archive:": Archive} {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			return local(s, kind, rest)
		}
	}
	return registry(s)
}

const (
	templatePrefix = "template:"
	// DefaultTag is the tag of a template where none is said, as E2B's clients have it.
	DefaultTag = "default"
)

// template reads NAME[:TAG].
func template(s, rest string) (Ref, error) {
	name, tag, tagged := strings.Cut(rest, ":")
	if !tagged {
		tag = DefaultTag
	}
	problem := ""
	switch {
	case !isTemplate(name):
		problem = "a template's name is of lower-case letters, digits, ., _ and - (128 at most), and begins with a letter or digit"
	case !isTag(tag):
		problem = "the tag is not letters, digits, ., _ and - (128 at most)"
	}
	if problem != "" {
		return Ref{}, &sandbox.Error{Op: fmt.Sprintf("template %.100q", rest), Kind: sandbox.ErrInvalid, Problem: problem, Hint: "write it as data, or data:v2"}
	}
	return Ref{Kind: Template, Name: name, Tag: tag}, nil
}

func isTemplate(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, lower+"._-") == "" && !strings.ContainsAny(s[:1], "._-")
}

// IsPath says whether s is written as a path.
func IsPath(s string) bool {
	return s == "." || s == ".." || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../")
}

// local reads PATH[:NAME].
func local(s string, kind Kind, rest string) (Ref, error) {
	r := Ref{Kind: kind}
	r.Path, r.Name, _ = strings.Cut(rest, ":")
	if r.Path == "" {
		return Ref{}, bad(s, "the path is missing")
	}
	return r, nil
}

// registry reads HOST/REPOSITORY:TAG@DIGEST, as docker does.
func registry(s string) (Ref, error) {
	r := Ref{}
	rest := strings.TrimPrefix(s, "docker://")
	rest, digest, pinned := strings.Cut(rest, "@")
	if r.Digest = digest; pinned && !isDigest(digest) {
		return Ref{}, bad(s, "after @ stands sha256: and 64 hex digits")
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, r.Tag = rest[:i], rest[i+1:]
		if !isTag(r.Tag) {
			return Ref{}, bad(s, "the tag is not letters, digits, ., _ and - (128 at most)")
		}
	} else if !pinned {
		r.Tag = "latest"
	}
	host, repo, ok := strings.Cut(rest, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, repo = "docker.io", rest
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(repo, "/") {
		repo = "library/" + repo
	}
	r.Host, r.Repository = host, repo
	if !isHost(host) {
		return Ref{}, bad(s, "the registry is no host name")
	}
	if !isRepository(repo) {
		return Ref{}, bad(s, "the repository is not of lower-case letters, digits, ., _, - and /")
	}
	return r, nil
}

// String is the one form of r. Two references with the same form mean the same.
func (r Ref) String() string {
	switch r.Kind {
	case Path:
		return r.Path
	case Template:
		return templatePrefix + r.Name + ":" + r.Tag
	case Layout, Archive:
		s := map[Kind]string{Layout: "oci:", Archive: "docker-archive:"}[r.Kind] + r.Path
		if r.Name != "" {
			s += ":" + r.Name
		}
		return s
	}
	s := r.Host + "/" + r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// Familiar is how people write r: without what is understood.
func (r Ref) Familiar() string {
	if r.Kind == Template {
		return strings.TrimSuffix(r.String(), ":"+DefaultTag)
	}
	s := strings.TrimPrefix(r.String(), "docker.io/")
	return strings.TrimPrefix(s, "library/")
}

// Allows says whether naming r allows other: they are the same image. A digest
// decides where there is one, whatever tag stands beside it.
func (r Ref) Allows(other Ref) bool {
	if r.Kind == Registry && other.Kind == Registry && r.Digest != "" {
		return r.Host == other.Host && r.Repository == other.Repository && r.Digest == other.Digest
	}
	return r == other
}

// Local says whether r names a file or directory of this host.
func (r Ref) Local() bool { return r.Kind == Path || r.Kind == Layout || r.Kind == Archive }

// At is r with its path absolute, relative ones starting from dir.
func (r Ref) At(dir string) Ref {
	if !r.Local() {
		return r
	}
	if filepath.IsAbs(r.Path) {
		r.Path = filepath.Clean(r.Path)
	} else {
		r.Path = filepath.Join(dir, r.Path)
	}
	return r
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz0123456789"
	letter = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// isTag says whether s can be a tag.
func isTag(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, letter+"._-") == "" && s[0] != '.' && s[0] != '-'
}

// isHost takes NAME[:PORT] and [ADDRESS]:PORT.
func isHost(s string) bool {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		address, port, ok := strings.Cut(rest, "]")
		return ok && address != "" && strings.Trim(address, "0123456789abcdefABCDEF:.") == "" && (port == "" || isPort(port[1:]) && port[0] == ':')
	}
	name, port, ok := strings.Cut(s, ":")
	if ok && !isPort(port) {
		return false
	}
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || strings.Trim(part, letter+"-") != "" || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
	}
	return len(name) <= 253
}

func isPort(s string) bool {
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

func isRepository(s string) bool {
	if s == "" || len(s) > 255 {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.Trim(part, lower+"._-") != "" || strings.Contains(part, "..") || strings.ContainsAny(part[:1]+part[len(part)-1:], "._-") {
			return false
		}
	}
	return true
}

func bad(s, problem string) error {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return &sandbox.Error{Op: fmt.Sprintf("image %q", s), Kind: sandbox.ErrInvalid, Problem: problem,
		Hint: "write it as python:3.14, ghcr.io/acme/tool:1, ./image.tar, or oci:DIR"}
}
