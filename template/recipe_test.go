// SPDX-License-Identifier: Apache-2.0

package template

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

const full = `# every key
warmup: import numpy
run:
  - useradd app
  - |
    echo one
    echo two
copy:
  - {from: app, to: ., chown: app, chmod: "0755"}
  - {from: [a.txt, "b*.txt"], to: data/}
npm: [typescript@5.9, "@scope/name"]
pip: [numpy==2.4.1, "requests[socks]>=2,<3"]
apt: [ffmpeg, g++, "libc6:i386=2.41-12+deb13u1"]
from: {image: "python:3.14"}
env: {MODE: test, WORKERS: 4, DEBUG: true}
workdir: /srv/app
user: 1000
start: python3 -m http.server 8000
ready: curl -sf localhost:8000
limits: {memory: 1GiB, wall: 10m, cpus: 2}
network: ["preset:git", "example.com:443", "preset:npm"]
`

func TestYAML(t *testing.T) {
	base := func(Base) Config {
		return Config{Env: []string{"PATH=/bin", "MODE=base"}, Cmd: []string{"python3"}, Dir: "/", User: "nobody"}
	}
	d, err := ParseYAML("template.yaml", []byte(full), Options{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/bin", "MODE=test", "WORKERS=4", "DEBUG=true"}
	with := func(more ...string) []string { return append(env[:len(env):len(env)], more...) }
	step := func(text string, line int, s Step) Step {
		s.Text, s.Line, s.Dir, s.User = text, line, "/srv/app", "root"
		if s.Env == nil {
			s.Env = env
		}
		return s
	}
	want := &Definition{
		Stages: []Stage{{
			From: Base{Kind: Image, Name: "python:3.14"},
			Steps: []Step{
				step("workdir /srv/app", 0, Step{MakeDir: "/srv/app"}),
				step("apt ffmpeg g++ libc6:i386=2.41-12+deb13u1", 13, Step{
					Env:  with("DEBIAN_FRONTEND=noninteractive"),
					Argv: append(managers[0].argv[:4:4], "ffmpeg", "g++", "libc6:i386=2.41-12+deb13u1"),
				}),
				step("pip numpy==2.4.1 requests[socks]>=2,<3", 12, Step{
					Env:  with("PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_ROOT_USER_ACTION=ignore", "PIP_DISABLE_PIP_VERSION_CHECK=1"),
					Argv: []string{"python3", "-m", "pip", "install", "--no-cache-dir", "--", "numpy==2.4.1", "requests[socks]>=2,<3"},
				}),
				step("npm typescript@5.9 @scope/name", 11, Step{Argv: append(managers[2].argv[:4:4], "typescript@5.9", "@scope/name")}),
				step("copy app .", 9, Step{Copy: &Copy{From: ContextDir, Sources: []string{"app"}, Target: "/srv/app/", Chown: "app", Chmod: "0755"}}),
				step("copy a.txt b*.txt data/", 10, Step{Copy: &Copy{From: ContextDir, Sources: []string{"a.txt", "b*.txt"}, Target: "/srv/app/data/"}}),
				step("run useradd app", 4, Step{Argv: []string{"/bin/sh", "-ec", "useradd app"}}),
				step("run echo one echo two", 5, Step{Argv: []string{"/bin/sh", "-ec", "echo one\necho two\n"}}),
			},
		}},
		Config: Config{
			Env: env, Dir: "/srv/app", User: "1000", Cmd: []string{"python3"},
			Start: "python3 -m http.server 8000", Ready: "curl -sf localhost:8000",
		},
		Network: []string{"preset:git", "example.com:443", "preset:npm", "preset:apt", "preset:pip"},
		Limits: sandbox.Limits{
			Memory: 1 << 30, Wall: 10 * time.Minute, CPUs: 2,
			Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true, sandbox.LimitWall: true, sandbox.LimitCPUs: true},
		},
		Warmup: "import numpy",
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

func TestYAMLFrom(t *testing.T) {
	for src, want := range map[string]Base{
		"from: host":                        {},
		"run: [a]":                          {},
		"from: {image: ghcr.io/a/b:1}":      {Kind: Image, Name: "ghcr.io/a/b:1"},
		"from:\n  template: base":           {Kind: Template, Name: "base"},
		"from: {template: \"data:v1\"}":     {Kind: Template, Name: "data:v1"},
		"{\"from\": {\"template\": \"x\"}}": {Kind: Template, Name: "x"},
	} {
		d, err := ParseYAML("template.yaml", []byte(src), Options{})
		if err != nil {
			t.Errorf("%s: %v", src, err)
		} else if d.Stages[0].From != want {
			t.Errorf("%s: %+v", src, d.Stages[0].From)
		}
	}
}

func TestYAMLRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ src, line, want string }{
		"empty":               {"", ":1", "it is empty: write at least from: host"},
		"a comment":           {"# x\n", ":1", "it is empty"},
		"a list":              {"- a", ":1", "not a mapping"},
		"no YAML":             {"from: host\nrun: [", "", "not YAML"},
		"two documents":       {"from: host\n---\nfrom: host", "", "second document"},
		"key":                 {"from: host\nruns: [a]", ":2", `a template has no key "runs": did you mean run?`},
		"key of no kind":      {"from: host\nquantity: [a]", ":2", "known are from, apt, pip, npm, copy"},
		"twice":               {"from: host\nfrom: host", ":2", "already in line 1"},
		"alias":               {"env: {A: &a x, B: *a}", ":1", "anchors are not taken"},
		"alias of a list":     {"apt: [a]\nrun: *x", ":2", ""},
		"tag":                 {"run: [!!str a]", ":1", "drop !!str"},
		"null":                {"from: host\napt:", ":2", "apt is empty"},
		"from":                {"from: debian", ":1", "is not known: write host, {image"},
		"from both":           {"from: {image: a, template: b}", ":1", "from says 2 bases"},
		"from none":           {"from: {}", ":1", "from says 0 bases"},
		"from path":           {"from: {image: /x}", ":1", "is a path"},
		"from scratch":        {"from: {image: scratch}", ":1", "scratch is no image"},
		"from template":       {"from: {template: ../x}", ":1", "no name of a template"},
		"apt option":          {"apt: [--allow-unauthenticated]", ":1", "no name of a package: write ffmpeg"},
		"apt option in name":  {"apt:\n- ok\n- -oAPT::x=1", ":3", "no name of a package"},
		"apt shell":           {"apt: [\"a; rm -rf /\"]", ":1", "no name of a package"},
		"apt substitution":    {"apt: [\"$(id)\"]", ":1", "no name of a package"},
		"apt file":            {"apt: [./a.deb]", ":1", "no name of a package"},
		"apt removal":         {"apt: [bash-]", ":1", "no name of a package"},
		"apt pattern":         {"apt: [\"*\"]", ":1", "no name of a package"},
		"apt newline":         {"apt: [\"a\\n--x\"]", ":1", "no name of a package"},
		"pip option":          {"pip: [--index-url=https://x.test]", ":1", "no name of a package: write numpy"},
		"pip file":            {"pip: [-rreq.txt]", ":1", "no name of a package"},
		"pip URL":             {"pip: [\"git+https://x.test/a\"]", ":1", "no name of a package"},
		"pip URL by name":     {"pip: [\"a @ https://x.test/a\"]", ":1", "no name of a package"},
		"pip path":            {"pip: [.]", ":1", "no name of a package"},
		"npm URL":             {"npm: [\"https://x.test/a.tgz\"]", ":1", "no name of a package: write typescript"},
		"npm git":             {"npm: [\"user/repo\"]", ":1", "no name of a package"},
		"npm alias":           {"npm: [\"a@npm:b\"]", ":1", "no name of a package"},
		"npm file":            {"npm: [\"a@file:/etc\"]", ":1", "no name of a package"},
		"npm option":          {"npm: [-g]", ":1", "no name of a package"},
		"number":              {"apt: [3]", ":1", "put it in quotes"},
		"many":                {"apt: [" + strings.Repeat("a, ", 600) + "a]", ":1", "more than 500 entries"},
		"copy":                {"copy: [a]", ":1", "not a mapping"},
		"copy key":            {"copy: [{from: a, too: b}]", ":1", "did you mean to?"},
		"copy no target":      {"copy: [{from: a}]", ":1", "has no from, or no to"},
		"copy outside":        {"copy: [{from: ../a, to: /b}]", ":1", "lies outside"},
		"copy target outside": {"copy: [{from: a, to: ../b}]", ":1", "not known: write an absolute path"},
		"copy mode":           {"copy: [{from: a, to: /b, chmod: \"9\"}]", ":1", "is no mode"},
		"copy mode number":    {"copy: [{from: a, to: /b, chmod: 0755}]", ":1", "put it in quotes"},
		"copy two":            {"copy: [{from: [a, b], to: /b}]", ":1", "must be a directory"},
		"copy owner":          {"copy: [{from: a, to: /b, chown: \"a b\"}]", ":1", "is no user"},
		"run text":            {"run: a", ":1", "run is not a list"},
		"run empty":           {"run: [\" \"]", ":1", "it is empty"},
		"run NUL":             {"from: host\nrun: [\"a\\0\"]", ":2", "NUL"},
		"env name":            {"env: {A-B: 1}", ":1", "no name of a variable"},
		"env list":            {"env: {A: [1]}", ":1", "not text"},
		"workdir":             {"workdir: app", ":1", "is no directory"},
		"workdir up":          {"workdir: /a/..", ":1", "is no directory"},
		"user":                {"user: a/b", ":1", "is no user"},
		"limit":               {"limits: {ram: 1}", ":1", `limits has no key "ram"`},
		"limit unit":          {"limits: {memory: lots}", ":1", "limits.memory"},
		"limit none":          {"limits: {wall: none}", ":1", "limits.wall"},
		"network word":        {"network: [pip]", ":1", "write preset:pip"},
		"network":             {"network: [\"a b\"]", ":1", "allows nothing"},
		"network preset":      {"network: [\"preset:x\"]", ":1", "allows nothing"},
		"not seen":            {"run:\n- \"a\u2066\"", ":2", "cannot be seen"},
		"deep":                {"run: " + strings.Repeat("[", 100000), "", "not YAML"},
		"long":                {"run: [\"" + strings.Repeat("x", 200000) + "\"]", ":1", "longer than the"},
		"10 MB":               {strings.Repeat("#", 10<<20), ":1", "longer than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ParseYAML("template.yaml", []byte(tc.src), Options{})
			wantFault(t, d, err, "template.yaml"+tc.line, tc.want, sandbox.ErrInvalid)
		})
	}
}

// All faults are told at once, in the order of their lines.
func TestYAMLFaults(t *testing.T) {
	_, err := ParseYAML("t.yaml", []byte("user: a/b\nenv: {1: x}\nworkdir: x\nfrom: y\n"), Options{})
	if got := strings.Count(err.Error(), "\n"); got != 3 || !strings.HasPrefix(err.Error(), "t.yaml:1: ") {
		t.Errorf("%d: %v", got, err)
	}
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte(full))
	for _, src := range []string{"from: host", "a: &a [*a]", "copy: [{from: a, to: b}]", "limits: {wall: 1s}\n---\n", "apt: [\"a=1\"]", "{from: {template: x}}"} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		d, err := ParseYAML("template.yaml", src, options())
		checkFuzzed(t, d, err)
		if d == nil {
			return
		}
		for _, s := range d.Stages[0].Steps {
			for _, m := range managers {
				if len(s.Argv) > len(m.argv) && strings.HasPrefix(s.Text, m.name+" ") {
					for _, p := range s.Argv[len(m.argv):] {
						if p == "" || p[0] == '-' || strings.ContainsAny(p, " \t\n;&|$`'\"\\(){}?*") && m.name != "pip" {
							t.Errorf("%s installs %q", m.name, p)
						}
					}
				}
			}
		}
	})
}

func TestIgnore(t *testing.T) {
	src, err := os.ReadFile("testdata/dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	i, err := ParseIgnore(".dockerignore", src)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		".git": true, ".git/config": true, "a/.git": false, "node_modules/x/y.js": true, "web/node_modules/z": true,
		"README.md": false, "docs/a.md": true, "a.log": true, "sub/a.log": true, "keep.log": false, "secret": true, "src/secret": false,
	} {
		if got, err := i.Match(path); got != want || err != nil {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if !i.Excepts() || (Ignore{}).Excepts() {
		t.Error("exceptions")
	}
	if hidden, err := (Ignore{}).Match("a"); hidden || err != nil {
		t.Error(hidden, err)
	}
	for name, bad := range map[string]string{"bracket": "a\n[", "only !": "!", "many": strings.Repeat("a\n", 2000), "line": strings.Repeat("a", 100000), "NUL": "a\x00"} {
		if _, err := ParseIgnore(".dockerignore", []byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The templates that are known by name can be read, and open no more than packages need.
func TestBuiltins(t *testing.T) {
	if d := cmp.Diff([]string{"code-interpreter-v1", "data-analysis"}, Builtins()); d != "" {
		t.Error(d)
	}
	for _, name := range Builtins() {
		d, err := ParseYAML(name, Builtin(name), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"preset:apt"}, d.Network); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for _, name := range []string{"", "other", "../builtin", "data-analysis.yaml"} {
		if Builtin(name) != nil {
			t.Errorf("%q is known", name)
		}
	}
}
