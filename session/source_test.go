// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

func TestSourcePlan(t *testing.T) {
	for name, tc := range map[string]struct {
		source Source
		want   program
		err    string
	}{
		"extension":        {Source{Name: "x.py"}, program{language: "python", Argv: []string{"python3"}, ext: ".py"}, ""},
		"named":            {Source{Language: "rb"}, program{language: "ruby", Argv: []string{"ruby"}, ext: ".rb"}, ""},
		"name wins":        {Source{Name: "x.py", Language: "sh"}, program{language: "sh", Argv: []string{"sh"}, ext: ".sh"}, ""},
		"shebang":          {Source{Code: []byte("#!/usr/bin/python3.11 -u\n")}, program{language: "python", Argv: []string{"/usr/bin/python3.11", "-u"}, ext: ".py"}, ""},
		"env":              {Source{Code: []byte("#!/usr/bin/env -S node --x y\n")}, program{language: "javascript", Argv: []string{"node", "--x", "y"}, ext: ".js"}, ""},
		"shebang wins":     {Source{Name: "x.py", Code: []byte("#!/bin/sh")}, program{language: "sh", Argv: []string{"/bin/sh"}, ext: ".sh"}, ""},
		"unknown shebang":  {Source{Code: []byte("#!/opt/own\n")}, program{language: "/opt/own", Argv: []string{"/opt/own"}}, ""},
		"compiled":         {Source{Name: "x", Code: []byte("\x7fELF\x00")}, program{language: "binary", direct: true}, ""},
		"compiled, named":  {Source{Language: "python", Code: []byte("\x7fELF\x00")}, program{}, "it is a compiled program and not python"},
		"NUL":              {Source{Language: "python", Code: []byte("ab\x00")}, program{}, "byte 2 is NUL"},
		"huge":             {Source{Language: "python", Code: make([]byte, MaxSource+1)}, program{}, "larger than 16 MiB"},
		"unknown language": {Source{Language: "klingon"}, program{}, "caisson does not know it"},
		"nothing to go by": {Source{Name: "x"}, program{}, "its language cannot be told"},
		"empty shebang":    {Source{Name: "x", Code: []byte("#!\n")}, program{}, "its language cannot be told"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.source.plan()
			if tc.err != "" {
				if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), tc.err) || sandbox.Hint(err) == "" {
					t.Errorf("got %v, want %q with a hint", err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(program{})); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

// No name, extension or interpreter means two languages.
func TestLanguagesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, l := range languages() {
		for kind, list := range map[string][]string{"name ": append([]string{l.name}, l.also...), "extension ": l.ext, "interpreter ": l.interp} {
			for _, s := range list {
				if other, ok := seen[kind+s]; ok && other != l.name {
					t.Errorf("%s%s means %s and %s", kind, s, other, l.name)
				}
				seen[kind+s] = l.name
			}
		}
	}
}

func FuzzShebang(f *testing.F) {
	for _, s := range []string{"#!/bin/sh\n", "#!/usr/bin/env python3", "#! /usr/bin/env -S a b", "#!", "#!\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		argv, ok := shebang(code)
		if ok && (len(argv) == 0 || argv[0] == "") {
			t.Fatalf("%q: %q", code, argv)
		}
		p, err := (Source{Code: code}).plan()
		if err == nil && !p.direct && (len(p.Argv) == 0 || p.Argv[0] == "") {
			t.Fatalf("%q: %+v", code, p)
		}
	})
}
