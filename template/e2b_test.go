// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// The steps are what npm e2b 2.51.0 sends.
func TestFromSteps(t *testing.T) {
	var steps []RawStep
	if err := json.Unmarshal([]byte(`[
		{"type": "COPY", "args": ["src/*.py", "app/", "", ""], "filesHash": "`+hash+`", "force": false},
		{"type": "COPY", "args": ["a.sh", "/opt/a.sh", "root", "0755"], "filesHash": "`+hash+`", "force": true},
		{"type": "RUN", "args": ["echo $A", "root"], "force": false},
		{"type": "ENV", "args": ["A", "1 '2'", "PATH", "/opt:$PATH", "B", "${"], "force": false},
		{"type": "USER", "args": ["root"], "force": false},
		{"type": "WORKDIR", "args": ["x$A/.."], "force": false},
		{"type": "RUN", "args": ["pwd"], "force": true}
	]`), &steps); err != nil {
		t.Fatal(err)
	}
	from := Base{Kind: Template, Name: "base"}
	d, err := FromSteps(from, steps, Options{Base: func(Base) Config { return Config{Env: []string{"PATH=/bin"}, User: "app", Start: "s"} }})
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/opt:/bin", "A=1 '2'", "B=${"}
	bash := func(line string) []string { return []string{"/bin/bash", "-l", "-c", line} }
	want := &Definition{
		Stages: []Stage{{From: from, Steps: []Step{
			{
				Text: "COPY src/*.py app/", Line: 1, Env: []string{"PATH=/bin"}, Dir: "/home/user", User: "user",
				Copy: &Copy{From: ContextDir, Upload: hash, Sources: []string{"src/*.py"}, Target: "/home/user/app/", Chown: "user"},
			},
			{
				Text: "COPY a.sh /opt/a.sh root 0755", Line: 2, Env: []string{"PATH=/bin"}, Dir: "/home/user", User: "user", NoCache: true,
				Copy: &Copy{From: ContextDir, Upload: hash, Sources: []string{"a.sh"}, Target: "/opt/a.sh", Chown: "root", Chmod: "0755"},
			},
			{Text: "RUN echo $A root", Line: 3, Env: []string{"PATH=/bin"}, Dir: "/home/user", User: "root", Argv: bash("echo $A")},
			{Text: "WORKDIR x$A/..", Line: 6, Env: env, Dir: "/home/user", User: "root", MakeDir: "/home/user"},
			{Text: "RUN pwd", Line: 7, Env: env, Dir: "/home/user", User: "root", Argv: bash("pwd"), NoCache: true},
		}}},
		Config: Config{Env: env, Dir: "/home/user", User: "root", Start: "s"},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

func TestFromStepsRefuses(t *testing.T) {
	run := RawStep{Type: "RUN", Args: []string{"true"}}
	for name, tc := range map[string]struct {
		step RawStep
		want string
	}{
		"kind":              {RawStep{Type: "FROM", Args: []string{"a"}}, "no kind of step"},
		"small letters":     {RawStep{Type: "run", Args: []string{"a"}}, "no kind of step"},
		"RUN nothing":       {RawStep{Type: "RUN"}, "RUN has 0 arguments"},
		"RUN empty":         {RawStep{Type: "RUN", Args: []string{""}}, "RUN has 1 arguments"},
		"RUN user":          {RawStep{Type: "RUN", Args: []string{"a", "b c"}}, "is no user"},
		"RUN NUL":           {RawStep{Type: "RUN", Args: []string{"a\x00"}}, "NUL"},
		"ENV odd":           {RawStep{Type: "ENV", Args: []string{"a"}}, "ENV has 1 arguments"},
		"ENV name":          {RawStep{Type: "ENV", Args: []string{"a=b", "c"}}, "no name of a variable"},
		"ENV long":          {RawStep{Type: "ENV", Args: []string{"a", strings.Repeat("x", 70000)}}, "longer than 64 KiB"},
		"ENV bomb":          {RawStep{Type: "ENV", Args: []string{"a", strings.Repeat("x", 60000), "b", "${a//?/$a}"}}, "could come to more"},
		"ENV nested":        {RawStep{Type: "ENV", Args: []string{"a", strings.Repeat("${a:-", 20000) + strings.Repeat("}", 20000)}}, "are open"},
		"USER":              {RawStep{Type: "USER", Args: []string{"-x"}}, "is no user"},
		"WORKDIR":           {RawStep{Type: "WORKDIR"}, "WORKDIR has 0 arguments"},
		"COPY hash":         {RawStep{Type: "COPY", Args: []string{"a", "b"}}, "as filesHash"},
		"COPY hash a path":  {RawStep{Type: "COPY", Args: []string{"a", "b"}, FilesHash: "../../etc/passwd"}, "as filesHash"},
		"COPY outside":      {RawStep{Type: "COPY", Args: []string{"../a", "b"}, FilesHash: hash}, "lies outside"},
		"COPY mode":         {RawStep{Type: "COPY", Args: []string{"a", "b", "", "rwx"}, FilesHash: hash}, "is no mode"},
		"COPY one argument": {RawStep{Type: "COPY", Args: []string{"a"}, FilesHash: hash}, "COPY has 1 arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := FromSteps(Base{}, []RawStep{run, tc.step}, Options{})
			wantFault(t, d, err, "step:2", tc.want, sandbox.ErrInvalid)
		})
	}
	d, err := FromSteps(Base{}, make([]RawStep, 2000), Options{})
	wantFault(t, d, err, "step", "more than 1000 steps", sandbox.ErrInvalid)
}

func FuzzSteps(f *testing.F) {
	f.Add([]byte(`[{"type":"COPY","args":["a","b","u","0755"],"filesHash":"` + hash + `"},{"type":"RUN","args":["a","root"]}]`))
	f.Add([]byte(`[{"type":"ENV","args":["A","$A${A%x}"]},{"type":"WORKDIR","args":["../.."]},{"type":"USER","args":["u"]}]`))
	f.Fuzz(func(t *testing.T, src []byte) {
		var steps []RawStep
		if json.Unmarshal(src, &steps) != nil {
			return
		}
		d, err := FromSteps(Base{Kind: Image, Name: "a"}, steps, options())
		checkFuzzed(t, d, err)
	})
}
