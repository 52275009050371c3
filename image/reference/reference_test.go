// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"python":                        "docker.io/library/python:latest",
		"python:3.14":                   "docker.io/library/python:3.14",
		"acme/tool":                     "docker.io/acme/tool:latest",
		"docker.io/python":              "docker.io/library/python:latest",
		"index.docker.io/acme/x:1":      "docker.io/acme/x:1",
		"docker://ghcr.io/a/b/c:1":      "ghcr.io/a/b/c:1",
		"localhost/x":                   "localhost/x:latest",
		"localhost:5000/x:1":            "localhost:5000/x:1",
		"127.0.0.1:5000/x":              "127.0.0.1:5000/x:latest",
		"[::1]:5000/x":                  "[::1]:5000/x:latest",
		"python@" + digest:              "docker.io/library/python@" + digest,
		"ghcr.io/a/b:1@" + digest:       "ghcr.io/a/b:1@" + digest,
		"./image.tar":                   "./image.tar",
		"/srv/x:y":                      "/srv/x:y",
		"..":                            "..",
		"oci:dir":                       "oci:dir",
		"oci:/srv/dir:name:1":           "oci:/srv/dir:name:1",
		"docker-archive:x.tar:python:3": "docker-archive:x.tar:python:3",
	} {
		r, err := reference.Parse(in)
		if err != nil || r.String() != want {
			t.Errorf("%s: %s, %v, want %s", in, r, err, want)
		}
		again, err := reference.Parse(r.String())
		if err != nil || again != r {
			t.Errorf("%s: read again it is %+v, not %+v", in, again, r)
		}
	}
	for _, in := range []string{"", "Python", "a b", "a/../b", "a//b", "a/", "/\x00", "x:", "x:.a", "x:" + strings.Repeat("a", 129), "x@", "x@sha256:12",
		"x@md5:" + strings.Repeat("0", 32), "-a.b/x", "a.b:port/x", "a.b:123456/x", "oci:", "docker-archive::x", "é", "x\n", "http://x/y", strings.Repeat("a", 5000), "_x", "x_", "[zz]:1/x"} {
		if r, err := reference.Parse(in); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
			t.Errorf("%.50q: %+v, %v, want it refused with a hint", in, r, err)
		}
	}
}

func TestFamiliar(t *testing.T) {
	for in, want := range map[string]string{"docker.io/library/python:3": "python:3", "acme/x": "acme/x:latest", "ghcr.io/library/x:1": "ghcr.io/library/x:1"} {
		r, err := reference.Parse(in)
		if err != nil || r.Familiar() != want {
			t.Errorf("%s: %s, want %s", in, r.Familiar(), want)
		}
	}
}

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"python", []string{"python", "python:3.14", "docker.io/library/python", "python@" + digest}, []string{"acme/python", "ghcr.io/library/python", "pythons"}},
		{"python:3.*", []string{"python:3.14", "python:3.14-slim"}, []string{"python", "python:2.7", "python@" + digest, "python:3.1@" + digest}},
		{"docker.io/library/*", []string{"python", "node:22"}, []string{"acme/x", "ghcr.io/library/x"}},
		{"acme/**", []string{"acme/x", "acme/a/b:1"}, []string{"evil/acme/x", "ghcr.io/acme/x", "acmeevil/x"}},
		{"ghcr.io/acme/**:v*", []string{"ghcr.io/acme/a/b:v1"}, []string{"ghcr.io/acme/a/b", "ghcr.io/acme-evil/a:v1", "ghcr.io.evil.org/acme/a:v1"}},
		{"*.example.org/x", []string{"a.example.org/x", "a.b.example.org/x:1"}, []string{"example.org.evil/x", "example.org/x"}},
		{"python@" + digest, []string{"python@" + digest, "python:3@" + digest}, []string{"python", "node@" + digest}},
		{"**", []string{"python", "ghcr.io/a/b/c"}, []string{"./x", "oci:x", "/srv/x"}},
		{"localhost:5000/x", []string{"localhost:5000/x:1"}, []string{"localhost:5001/x", "localhost/x"}},
	}
	for _, tt := range tests {
		if err := reference.CheckPattern(tt.pattern); err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
		}
		for want, list := range map[bool][]string{true: tt.yes, false: tt.no} {
			for _, s := range list {
				r, err := reference.Parse(s)
				if err != nil {
					t.Fatal(err)
				}
				if got := reference.Match(tt.pattern, r); got != want {
					t.Errorf("%s matches %s: %v", tt.pattern, s, got)
				}
			}
		}
	}
	for _, p := range []string{"", " ", "a b", "/srv/x", "./x", "oci:x", "x@sha256:1", "x//y", "x/", "x\x00", "a?b"} {
		if reference.CheckPattern(p) == nil {
			t.Errorf("%q is taken for a pattern", p)
		}
	}
}

// FuzzParse: what is taken has one form, which is read as the same reference,
// and only what begins like a path is one.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"python:3.14", "ghcr.io/a/b:1@" + digest, "oci:x:y", "./x", "[::1]:1/x", "docker://a.b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := reference.Parse(s)
		if err != nil {
			if sandbox.Hint(err) == "" {
				t.Errorf("%q: no hint", s)
			}
			return
		}
		again, err := reference.Parse(r.String())
		if err != nil || again != r {
			t.Errorf("%q: %+v read again is %+v, %v", s, r, again, err)
		}
		if r.Kind == reference.Registry && (r.Host == "" || strings.ContainsAny(r.Repository, ":@ \\") || strings.Contains(r.Repository, "..")) {
			t.Errorf("%q: %+v", s, r)
		}
		if !r.Local() {
			reference.Match(s, r)
		}
	})
}
