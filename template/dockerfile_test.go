// SPDX-License-Identifier: Apache-2.0

package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// options are what tests know of bases.
func options() Options {
	return Options{
		Arch: "amd64", Args: map[string]string{"VERSION": "2"},
		Base: func(b Base) Config {
			if !strings.HasPrefix(b.Name, "python:") {
				return Config{}
			}
			return Config{Env: []string{"PATH=/usr/local/bin:/bin", "PYTHON_VERSION=3.14"}, Cmd: []string{"python3"}, Labels: map[string]string{"of": "base"}}
		},
	}
}

func TestDockerfileGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.Dockerfile")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d, err := ParseDockerfile("Dockerfile", src, options())
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			enc := json.NewEncoder(&got)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "\t")
			if err := enc.Encode(d); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".Dockerfile") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDockerfileRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		src, want string // want is part of the message and of its hint
		line      string
		kind      error
	}{
		"empty":                {"", "no instructions", ":1", sandbox.ErrInvalid},
		"no FROM":              {"ARG A=1\n", "it has no FROM", ":1", sandbox.ErrInvalid},
		"before FROM":          {"\nRUN true\nFROM a\n", "RUN stands before the first FROM", ":2", sandbox.ErrInvalid},
		"unknown":              {"FROM a\nRNU true\n", "unknown instruction: RNU", ":2", sandbox.ErrInvalid},
		"ONBUILD":              {"FROM a\n\nONBUILD RUN true\n", "ONBUILD is not carried", ":3", sandbox.ErrUnsupported},
		"--mount":              {"FROM a\nRUN --mount=type=cache,target=/x true", "RUN --mount is not carried", ":2", sandbox.ErrUnsupported},
		"--network":            {"FROM a\nRUN --network=none true", "RUN --network is not carried", ":2", sandbox.ErrUnsupported},
		"--security":           {"FROM a\nRUN --security=insecure true", "RUN --security is not carried", ":2", sandbox.ErrUnsupported},
		"--exclude":            {"FROM a\nCOPY --exclude=*.md . /x", "--exclude is not carried: name the files in .dockerignore", ":2", sandbox.ErrUnsupported},
		"--parents":            {"FROM a\nCOPY --parents . /x", "--parents is not carried", ":2", sandbox.ErrUnsupported},
		"flag":                 {"FROM a\nCOPY --what . /x", "unknown flag: --what", ":2", sandbox.ErrInvalid},
		"ADD URL":              {"FROM a\nADD https://x.test/a.tgz /", "ADD of \"https://x.test/a.tgz\" is not carried: fetch it in a RUN", ":2", sandbox.ErrUnsupported},
		"ADD URL in variable":  {"FROM a\nARG U=https://x.test/a\nADD $U /", "is not carried", ":3", sandbox.ErrUnsupported},
		"ADD git":              {"FROM a\nADD git@github.com:a/b.git#main /", "is not carried", ":2", sandbox.ErrUnsupported},
		"--checksum":           {"FROM a\nADD --checksum=sha256:0 a /", "ADD --checksum is not carried", ":2", sandbox.ErrUnsupported},
		"platform":             {"FROM --platform=linux/s390x a", "FROM --platform=linux/s390x on linux/amd64 is not carried", ":1", sandbox.ErrUnsupported},
		"FROM nothing":         {"ARG A\nFROM $A", "FROM $A names no image", ":2", sandbox.ErrInvalid},
		"FROM path":            {"FROM /etc", "is a path", ":1", sandbox.ErrInvalid},
		"FROM archive":         {"FROM docker-archive:/x.tar", "is a path", ":1", sandbox.ErrInvalid},
		"FROM no reference":    {"FROM a:b:c d", "FROM requires", ":1", sandbox.ErrInvalid},
		"--from path":          {"FROM a\nCOPY --from=/etc passwd /", "is a path", ":2", sandbox.ErrInvalid},
		"--from itself":        {"FROM a AS x\nCOPY --from=x a /", "names its own stage", ":2", sandbox.ErrInvalid},
		"--from own number":    {"FROM a\nCOPY --from=0 a /", "names its own stage", ":2", sandbox.ErrInvalid},
		"--from later":         {"FROM a\nCOPY --from=1 a /\nFROM b", "no earlier stage \"1\"", ":2", sandbox.ErrInvalid},
		"--from below 0":       {"FROM a\nCOPY --from=-1 a /", "no earlier stage", ":2", sandbox.ErrInvalid},
		"--from scratch":       {"FROM a\nCOPY --from=scratch a /", "nothing to copy", ":2", sandbox.ErrInvalid},
		"outside":              {"FROM a\nCOPY ../x /", "lies outside", ":2", sandbox.ErrInvalid},
		"outside by variable":  {"FROM a\nARG D=a/../..\nCOPY $D/x /", "lies outside", ":3", sandbox.ErrInvalid},
		"two to a file":        {"FROM a\nCOPY a b /x", "must be a directory", ":2", sandbox.ErrInvalid},
		"no target":            {"FROM a\nCOPY a", "at least two arguments", ":2", sandbox.ErrInvalid},
		"mode":                 {"FROM a\nCOPY --chmod=u=rwx a /", "is no mode: write it in octal", ":2", sandbox.ErrInvalid},
		"heredoc name":         {"FROM a\nCOPY <<a/b /\nx\na/b\n", "is no name of a file", ":2", sandbox.ErrInvalid},
		"heredoc without end":  {"FROM a\nRUN <<EOF\ntrue\n", "unterminated heredoc", ":2", sandbox.ErrInvalid},
		"RUN nothing":          {"FROM a\nRUN []", "nothing to run", ":2", sandbox.ErrInvalid},
		"SHELL text":           {"FROM a\nSHELL bash -c", "JSON", ":2", sandbox.ErrInvalid},
		"port":                 {"FROM a\nEXPOSE 0", "is no port", ":2", sandbox.ErrInvalid},
		"ports":                {"FROM a\nEXPOSE 9-8", "is no port", ":2", sandbox.ErrInvalid},
		"protocol":             {"FROM a\nEXPOSE 80/http", "is no port", ":2", sandbox.ErrInvalid},
		"user":                 {"FROM a\nUSER a:", "is no user", ":2", sandbox.ErrInvalid},
		"name of a variable":   {"FROM a\nARG N=a=b\nENV $N=1", "is no name of a variable", ":3", sandbox.ErrInvalid},
		"must be set":          {"FROM a\nENV A=\"${B:?say B}\"", "say B", ":2", sandbox.ErrInvalid},
		"brace":                {"FROM a\n\nENV A=${B", "failed to process", ":3", sandbox.ErrInvalid},
		"NUL":                  {"FROM a\nRUN [\"a\\u0000\"]", "NUL", ":2", sandbox.ErrInvalid},
		"not seen":             {"FROM a\nRUN echo \u202e", "cannot be seen", ":2", sandbox.ErrInvalid},
		"not UTF-8":            {"FROM a\nRUN echo \xff", "not UTF-8", ":2", sandbox.ErrInvalid},
		"HEALTHCHECK":          {"FROM a\nHEALTHCHECK TEST a", "Unknown type", ":2", sandbox.ErrInvalid},
		"long argument":        {"FROM a\nRUN true" + strings.Repeat(" \\\n"+strings.Repeat("x", 60000), 3), "longer than the", ":2", sandbox.ErrInvalid},
		"line too long":        {"FROM a\nRUN " + strings.Repeat("x", 70000), "greater than max", "", sandbox.ErrInvalid},
		"too many":             {"FROM a\n" + strings.Repeat("RUN true\n", 10000), "more than 1000 instructions", ":1001", sandbox.ErrInvalid},
		"too many steps":       {"FROM a\n" + strings.Repeat("VOLUME /a /b /c\n", 999), "more than 1000 steps", "", sandbox.ErrInvalid},
		"10 MB":                {"FROM a\n" + strings.Repeat("#\n", 5<<20), "longer than 1 MiB", ":1", sandbox.ErrInvalid},
		"doubling":             {"FROM a\nENV A=0123456789\n" + strings.Repeat("ENV A=$A$A$A$A\n", 20), "longer than 64 KiB", "", sandbox.ErrInvalid},
		"doubling in ARG":      {"ARG A=0123456789\n" + strings.Repeat("ARG A=$A$A$A$A\n", 20) + "FROM a", "longer than 64 KiB", "", sandbox.ErrInvalid},
		"patterns":             {"FROM a\nENV A=" + strings.Repeat("x", 30000) + "\nENV B=${A//?/$A}\n", "could come to more than 64 MiB", ":3", sandbox.ErrInvalid},
		"patterns, with quote": {"FROM a\nENV A=" + strings.Repeat("x", 500) + "\nENV B=${A//?/'}'${A//?/${A//?/x}}}\n", "could come to more than 64 MiB", ":3", sandbox.ErrInvalid},
		"names like $1x":       {"FROM a\nENV 1=" + strings.Repeat("x", 30000) + "\nENV B=${1//?/$1x}\n", "could come to more than 64 MiB", ":3", sandbox.ErrInvalid},
		"nested":               {"FROM a\nENV A=" + strings.Repeat("${B:-", 10000) + strings.Repeat("}", 10000), "are open here", ":2", sandbox.ErrInvalid},
		"nested in RUN <<":     {"FROM a\nRUN <<A " + strings.Repeat("${B:-", 10000), "are open here", ":2", sandbox.ErrInvalid},
		"ONBUILD in ONBUILD":   {"FROM a\n" + strings.Repeat("ONBUILD \\\n", 90000) + "RUN a", "ONBUILD is not carried", ":2", sandbox.ErrUnsupported},
		"variables":            {"FROM a\nENV A=1" + manyVariables(2000), "more than 1000 variables", ":2", sandbox.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ParseDockerfile("Dockerfile", []byte(tc.src), Options{Arch: "amd64"})
			wantFault(t, d, err, "Dockerfile"+tc.line, tc.want, tc.kind)
		})
	}
}

func manyVariables(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(" \\\n V" + strings.Repeat("x", i%50) + string(rune('A'+i%26)) + string(rune('A'+i/26%26)) + string(rune('A'+i/676)) + "=1")
	}
	return b.String()
}

// wantFault: err is one for people, at a place.
func wantFault(t *testing.T, d *Definition, err error, at, want string, kind error) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) {
		t.Fatalf("accepted: %+v, %v", d, err)
	}
	if d != nil {
		t.Error("a definition beside an error")
	}
	if got := e.Problem + ": " + e.Hint; !strings.Contains(got, want) || !strings.HasPrefix(e.Op+":", at+":") || !errors.Is(err, kind) {
		t.Errorf("%s: %s (%v); want %s: …%s… (%v)", e.Op, got, e.Kind, at, want, kind)
	}
	if len(e.Problem) > 2*maxShown || len(e.Hint) > 2*maxShown {
		t.Errorf("a message of %d bytes", len(e.Error()))
	}
}

// What holds in a stage is said by the base, by earlier stages and by arguments.
func TestDockerfileState(t *testing.T) {
	config := func(c Config) func(Base) Config { return func(Base) Config { return c } }
	for name, tc := range map[string]struct {
		src  string
		o    Options
		want func(d *Definition) any
		is   any
	}{
		"PATH without a base": {"FROM a\nENV PATH=/x:$PATH", Options{}, func(d *Definition) any { return d.Config.Env }, []string{"PATH=/x:" + defaultPath}},
		"PATH of the base": {
			"FROM a\nENV PATH=/x:$PATH", Options{Base: config(Config{Env: []string{"PATH=/b"}})},
			func(d *Definition) any { return d.Config.Env }, []string{"PATH=/x:/b"},
		},
		"WORKDIR below the base's": {"FROM a\nWORKDIR x", Options{Base: config(Config{Dir: "/app"})}, func(d *Definition) any { return d.Config.Dir }, "/app/x"},
		"WORKDIR back":             {"FROM a\nWORKDIR x\nWORKDIR ../../../y", Options{}, func(d *Definition) any { return d.Config.Dir }, "/y"},
		"CMD of the base goes":     {"FROM a\nENTRYPOINT [\"e\"]", Options{Base: config(Config{Cmd: []string{"c"}})}, func(d *Definition) any { return d.Config.Cmd }, []string(nil)},
		"CMD stays":                {"FROM a\nCMD [\"c\"]\nENTRYPOINT [\"e\"]", Options{}, func(d *Definition) any { return d.Config.Cmd }, []string{"c"}},
		"of an earlier stage": {
			"FROM a AS one\nENV A=1\nARG B=2\nUSER u\nSHELL [\"sh\"]\nFROM one\nRUN x\nRUN y$B", Options{},
			func(d *Definition) any { return d.Stages[1].Steps },
			[]Step{
				{Text: "RUN x", Line: 7, Env: []string{"A=1"}, User: "u", Argv: []string{"sh", "x"}},
				{Text: "RUN y$B", Line: 8, Env: []string{"A=1"}, User: "u", Argv: []string{"sh", "y$B"}},
			},
		},
		"an argument": {
			"FROM a\nARG A=1\nARG B\nRUN x", Options{Args: map[string]string{"A": "2", "B": "3", "C": "4"}},
			func(d *Definition) any { return d.Stages[0].Steps[0].Env }, []string{"A=2", "B=3"},
		},
		"an argument without a value": {"FROM a\nARG B\nRUN x", Options{}, func(d *Definition) any { return len(d.Stages[0].Steps[0].Env) }, 0},
		"a global one": {
			"ARG A=1 B=${A}2\nFROM i:$B\nARG B\nRUN x", Options{},
			func(d *Definition) any { return []any{d.Stages[0].From, d.Stages[0].Steps[0].Env} },
			[]any{Base{Kind: Image, Name: "i:12"}, []string{"B=12"}},
		},
		"a global one with a value of the caller": {
			"ARG A=1\nFROM i:$A", Options{Args: map[string]string{"A": "2"}},
			func(d *Definition) any { return d.Stages[0].From }, Base{Kind: Image, Name: "i:2"},
		},
		"a global one that is not asked for": {"ARG A=1\nFROM i\nENV B=x$A", Options{}, func(d *Definition) any { return d.Config.Env }, []string{"B=x"}},
		"no readiness":                       {"FROM a\nHEALTHCHECK CMD x\nHEALTHCHECK NONE", Options{}, func(d *Definition) any { return d.Config.Ready }, ""},
		"readiness in a shell":               {"FROM a\nSHELL [\"bash\", \"-c\"]\nHEALTHCHECK CMD x y", Options{}, func(d *Definition) any { return d.Config.Ready }, "bash -c 'x y'"},
		"the latest of one name": {
			"FROM a AS x\nFROM b AS x\nFROM x", Options{},
			func(d *Definition) any { return []any{len(d.Stages), d.Stages[0].From.Name, d.Stages[1].From} }, []any{2, "b", Base{Kind: Earlier}},
		},
		"a root target":      {"FROM a\nCOPY . /", Options{}, func(d *Definition) any { return d.Stages[0].Steps[0].Copy }, &Copy{From: ContextDir, Sources: []string{"."}, Target: "/"}},
		"an absolute source": {"FROM a\nCOPY /a/ /b", Options{}, func(d *Definition) any { return d.Stages[0].Steps[0].Copy }, &Copy{From: ContextDir, Sources: []string{"a"}, Target: "/b"}},
		"ADD unpacks":        {"FROM a\nADD a.tar /b/", Options{}, func(d *Definition) any { return d.Stages[0].Steps[0].Copy }, &Copy{From: ContextDir, Sources: []string{"a.tar"}, Target: "/b/", Extract: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ParseDockerfile("Dockerfile", []byte(tc.src), tc.o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.is, tc.want(d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The bases do not depend on what is known of them.
func FuzzDockerfile(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.Dockerfile")
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	for _, src := range []string{
		"FROM a\nONBUILD ONBUILD RUN a", "FROM a\nENV A=${A//?/$A}${A%%*}", "FROM a\nRUN <<A <<-B\nA\n\tB\n", "# escape=`\nFROM a`\n",
		"FROM a\nCOPY [\"a\", \"b\"]", "FROM a\nLABEL a b", "FROM a\nHEALTHCHECK CMD", "FROM a\nHEALTHCHECK CMD []", "FROM a\nRUN <<\n", "FROM a\nADD <<A\nA",
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		d, err := ParseDockerfile("Dockerfile", src, options())
		blind, _ := ParseDockerfile("Dockerfile", src, Options{Arch: "amd64", Args: options().Args})
		checkFuzzed(t, d, err)
		if d == nil || blind == nil {
			return
		}
		for i := range d.Stages {
			if d.Stages[i].From != blind.Stages[i].From {
				t.Errorf("from %v, and %v", d.Stages[i].From, blind.Stages[i].From)
			}
		}
	})
}

// checkFuzzed holds the bounds, and what the builder relies on.
func checkFuzzed(t *testing.T, d *Definition, err error) {
	t.Helper()
	if err != nil {
		if d != nil || strings.Contains(err.Error(), "reading it failed") {
			t.Errorf("%v, %v", d, err)
		}
		return
	}
	steps := 0
	for i, s := range d.Stages {
		if s.From.Kind == Earlier && (s.From.Stage < 0 || s.From.Stage >= i) {
			t.Errorf("stage %d is from %d", i, s.From.Stage)
		}
		for _, step := range s.Steps {
			steps++
			checkStep(t, i, step)
		}
	}
	if steps > maxSteps || len(d.Config.Env) > maxNames || len(d.Config.Ports) > maxNames || len(d.Config.Labels) > maxNames {
		t.Errorf("%d steps, %d variables, %d ports, %d labels", steps, len(d.Config.Env), len(d.Config.Ports), len(d.Config.Labels))
	}
}

func checkStep(t *testing.T, stage int, s Step) {
	t.Helper()
	kinds := 0
	for _, is := range []bool{len(s.Argv) > 0, s.Copy != nil, s.MakeDir != ""} {
		if is {
			kinds++
		}
	}
	if kinds != 1 || len(s.Text) > 2*maxText || strings.ContainsAny(s.Text, "\n\x1b") {
		t.Errorf("a step of %d kinds: %+v", kinds, s)
	}
	if s.MakeDir != "" && (!filepath.IsAbs(s.MakeDir) || filepath.Clean(s.MakeDir) != s.MakeDir) {
		t.Errorf("makes %q", s.MakeDir)
	}
	c := s.Copy
	if c == nil {
		return
	}
	if c.From < ContextDir || c.From >= stage || c.From >= 0 && (c.FromImage != "" || c.Upload != "") {
		t.Errorf("stage %d copies from %d %s", stage, c.From, c.FromImage)
	}
	for _, src := range c.Sources {
		if !filepath.IsLocal(src) || filepath.Clean(src) != src {
			t.Errorf("copies %q", src)
		}
	}
	if c.Target == "" || !filepath.IsAbs(c.Target) && !filepath.IsLocal(c.Target) {
		t.Errorf("copies to %q", c.Target)
	}
}
