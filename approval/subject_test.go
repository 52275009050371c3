// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func subject() *Subject {
	return &Subject{
		Actor: "key:ci", Kind: "run_command", Argv: []string{"git", "push", "origin", "main"}, Dir: "/workspace",
		Files:   []File{{"git", "/usr/bin/git", "sha256:aa", 5}},
		Env:     []Variable{{"HOME", "h1"}, {"TOKEN", "h2"}},
		Mounts:  []Mount{{"/srv/repo", "/workspace", "rw", "1:2"}},
		Network: "github.com", Limits: map[string]string{"wall": "30s"},
		Policy:   "sha256:bb",
		Reasons:  []Reason{{"caisson.yaml:4", `"git push origin main" needs approval by "git push *"`}},
		Findings: []string{"script.py:1:8: it imports socket"},
		HasStdin: true, Stdin: []byte("in"), Code: []byte("code"), Program: []string{"bash"}, Secrets: []string{"s"}, Options: []string{"o"},
	}
}

// Everything that a Subject can say is in its digest: a field that is added and
// forgotten there fails here.
func TestDigestCoversEverything(t *testing.T) {
	seen := map[string]string{subject().Digest(): "nothing"}
	differs := func(what string, s *Subject) {
		t.Helper()
		if other, ok := seen[s.Digest()]; ok {
			t.Errorf("changing %s gives the digest of changing %s", what, other)
		}
		seen[s.Digest()] = what
	}
	var each func(what string, get func(*Subject) reflect.Value)
	each = func(what string, get func(*Subject) reflect.Value) {
		s := subject()
		switch v := get(s); v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
			differs(what, s)
		case reflect.Bool:
			v.SetBool(!v.Bool())
			differs(what, s)
		case reflect.Int64:
			v.SetInt(v.Int() + 1)
			differs(what, s)
		case reflect.Uint8:
			v.SetUint(v.Uint() + 1)
			differs(what, s)
		case reflect.Map:
			v.SetMapIndex(reflect.ValueOf("more"), reflect.ValueOf("1"))
			differs(what, s)
		case reflect.Slice:
			if v.Len() == 0 {
				t.Fatalf("%s is empty in the subject of this test", what)
			}
			for i := range v.Len() {
				each(what+" item", func(s *Subject) reflect.Value { return get(s).Index(i) })
			}
			v.Set(v.Slice(0, v.Len()-1))
			differs(what+", one less", s)
		case reflect.Struct:
			for i := range v.NumField() {
				each(what+"."+v.Type().Field(i).Name, func(s *Subject) reflect.Value { return get(s).Field(i) })
			}
		default:
			t.Fatalf("%s: this test does not know a %s", what, v.Kind())
		}
	}
	each("subject", func(s *Subject) reflect.Value { return reflect.ValueOf(s).Elem() })
	if len(seen) < 40 {
		t.Errorf("only %d changes were tried", len(seen))
	}
}

// Where one part ends and the next begins is part of what is digested.
func TestDigestTellsPartsApart(t *testing.T) {
	for _, pair := range [][2]Subject{
		{{Argv: []string{"a b"}}, {Argv: []string{"a", "b"}}},
		{{Argv: []string{"a", ""}}, {Argv: []string{"a"}}},
		{{Argv: []string{"rm", "x\x00y"}}, {Argv: []string{"rm\x00x", "y"}}},
		{{Argv: []string{"\xff"}}, {Argv: []string{"\xfe"}}},
		{{Argv: []string{"a"}}, {Program: []string{"a"}}},
		{{Tool: "ab", Params: "c"}, {Tool: "a", Params: "bc"}},
		{{HasStdin: true}, {}},
		{{Env: []Variable{{"A", "B"}}}, {Env: []Variable{{"AB", ""}}}},
	} {
		if pair[0].Digest() == pair[1].Digest() {
			t.Errorf("%+v and %+v have one digest", pair[0], pair[1])
		}
	}
}

func TestSealNeedsTheKey(t *testing.T) {
	if Seal([]byte("a"), "v") == Seal([]byte("b"), "v") || Seal([]byte("a"), "v") == Seal([]byte("a"), "w") {
		t.Error("a seal does not depend on the key and the value")
	}
}

// A view says everything that is asked, warns of what is odd, and a value that
// tries to be a field of ours stays a value.
func TestView(t *testing.T) {
	s := subject()
	s.Argv = []string{"git", "push", "x\npolicy:\n  │ sha256:cc", "p\u0430ypal"}
	s.Code = nil
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	text := v.String()
	for _, want := range []string{
		"! argument 3 has letters of several alphabets in one word\n", "program:\n  │ git\n", "argument 2:\n  │ x\n  │ policy:\n  │   │ sha256:cc\n",
		"asked by:\n  │ key:ci\n", "policy:\n  │ sha256:bb\n", "  │ git is /usr/bin/git\n", "sees:\n  │ /srv/repo at /workspace, rw\n",
		"rules about code say:\n  │ script.py:1:8: it imports socket\n", "variables:\n  │ HOME\n  │ TOKEN\n", "standard input:\n  │ in\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\npolicy:"); n != 1 {
		t.Errorf("there are %d policies", n)
	}
	if strings.Contains(text, "h2") {
		t.Error("the seal of a value is shown")
	}
}

// What cannot be looked through cannot be approved.
func TestTooLong(t *testing.T) {
	for name, code := range map[string]string{
		"bytes": strings.Repeat("a", maxText+1), "lines": strings.Repeat("a\n", maxLines+1),
	} {
		s := subject()
		s.Code = []byte(code)
		if _, err := s.View(); err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := subject()
	s.Argv = slices.Repeat([]string{"a"}, maxLines)
	if _, err := s.View(); err == nil {
		t.Error("many arguments are shown")
	}
}
