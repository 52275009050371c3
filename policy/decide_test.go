// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/google/go-cmp/cmp"
)

// parse reads src as the file name in /w; "" is no file.
func parse(t testing.TB, name, src string) *File {
	t.Helper()
	if src == "" {
		return nil
	}
	f, err := Parse(name, []byte("version: 1\n"+src))
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return f
}

func policyOf(t testing.TB, system, file string) *Policy {
	t.Helper()
	p, err := New(Options{System: parse(t, "/etc/caisson/policy.yaml", system), File: parse(t, "/w/p.yaml", file)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// command is the operator's call with changes.
func command(change func(c *Call)) *Call {
	c := &Call{ID: "call_1", Actor: "root", Kind: RunCommand, Argv: []string{"true"}, Operator: true}
	if change != nil {
		change(c)
	}
	return c
}

func wantLimit(name sandbox.LimitName, v float64) func(*Call) {
	return func(c *Call) {
		for _, l := range limits() {
			if l.name == name {
				l.set(&c.Limits, v)
			}
		}
		c.Limits.Explicit = map[sandbox.LimitName]bool{name: true}
	}
}

func gitWrite(c *Call) { c.Git = GitWrite }

func wantMount(source, target string, a sandbox.Access) func(*Call) {
	return func(c *Call) { c.Mounts = []MountWish{{source, target, a, false}} }
}

func wantEnv(name, value string) func(*Call) {
	return func(c *Call) { c.Env = map[string]string{name: value} }
}

func together(changes ...func(*Call)) func(*Call) {
	return func(c *Call) {
		for _, f := range changes {
			f(c)
		}
	}
}

func override(c *Call)   { c.Override = true }
func stranger(c *Call)   { c.Operator = false }
func root(c *Call)       { c.Root = true }
func sudo(c *Call)       { c.Sudo = true }
func bestEffort(c *Call) { c.BestEffort = true }

const gib = 1 << 30

// TestDenied is the matrix of what is refused, by which rule, with what hint.
func TestDenied(t *testing.T) {
	const files = "files:\n  workspace: {source: ., mode: cow}\n  mounts:\n    - {source: /srv/data, target: /data}\n"
	ro, cow, rw := sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite
	for _, tc := range []struct {
		name         string
		system, file string
		call         func(*Call)
		rule, hint   string
	}{
		// Limits.
		{"raise a limit", "", "limits: {memory: 256MiB}", wantLimit("memory", gib), "/w/p.yaml:2", "memory: 1GiB"},
		{"raise a default", "", "user: user", wantLimit("wall", float64(time.Minute)), "/w/p.yaml", "limits: {wall: 1m0s}"},
		{"raise beyond the system", "limits: {memory: 128MiB}", "", wantLimit("memory", gib), "/etc/caisson/policy.yaml:2", "memory: 1GiB"},
		{
			"override beyond the system", "limits: {memory: 512MiB}", "limits: {memory: 256MiB}",
			together(wantLimit("memory", gib), override), "/etc/caisson/policy.yaml:2", "memory: 1GiB",
		},
		{
			"override beyond the system's default", "user: user", "limits: {memory: 100MiB}",
			together(wantLimit("memory", gib), override), "/etc/caisson/policy.yaml", "limits: {memory: 1GiB}",
		},
		{
			"override by another", "", "limits: {memory: 256MiB}",
			together(wantLimit("memory", gib), override, stranger), "built-in: override", "operator",
		},
		{"raise by another without a file", "", "", together(wantLimit("memory", gib), stranger), "built-in: defaults", "ask the operator"},
		{"truncate where the file kills", "", "limits: {on_output: kill}", wantLimit("on_output", 0), "/w/p.yaml:2", "truncate"},
		{"negative", "", "", wantLimit("memory", -1), "built-in: valid requests", "1B"},
		{"zero is no limit at all", "", "", wantLimit("wall", 0), "built-in: valid requests", "1ms"},
		{"absurd", "", "", wantLimit("processes", 1e9), "built-in: valid requests", "4194304"},
		{"unknown limit", "", "", wantLimit("bandwidth", 1), "built-in: valid requests", ""},
		{"file beyond the system", "limits: {memory: 128MiB}", "limits: {memory: 256MiB}", nil, "/etc/caisson/policy.yaml:2", "change /w/p.yaml:2"},
		{"file beyond the system's default", "user: user", "limits: {wall: 1h}", nil, "/etc/caisson/policy.yaml", "limits: {wall: 1h0m0s}"},

		// Isolation.
		{"other isolation", "", "isolation: gvisor", func(c *Call) { c.Isolation = "microvm" }, "/w/p.yaml:2", "isolation: microvm"},
		{"weaker than the default", "", "user: user", func(c *Call) { c.Isolation = "docker" }, "/w/p.yaml", "isolation: docker"},
		{"not comparable", "", "user: user", func(c *Call) { c.Isolation = "kubernetes" }, "/w/p.yaml", "isolation: kubernetes"},
		{"unknown isolation", "", "", func(c *Call) { c.Isolation = "gviser" }, "built-in: valid requests", "gvisor"},
		{"file against the system", "isolation: gvisor", "isolation: process", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},
		{"isolation is not overridden", "", "isolation: gvisor", together(override, func(c *Call) { c.Isolation = "process" }), "/w/p.yaml:2", ""},

		// Mounts.
		{"mount without files", "", "user: user", wantMount("/srv/x", "/x", ro), "/w/p.yaml", "files: {mounts: [{source: /srv/x, target: /x, mode: ro}]}"},
		{"beside the source", "", files, wantMount("/srv/database", "/x", ro), "/w/p.yaml:2", "/srv/database"},
		{"above the source", "", files, wantMount("/srv", "/x", ro), "/w/p.yaml:2", "/srv"},
		{"out by dots", "", files, wantMount("/srv/data/../x", "/x", ro), "/w/p.yaml:2", "/srv/x"},
		{"wider than named", "", files, wantMount("/srv/data/a", "/x", cow), "/w/p.yaml:5", "mode: cow"},
		{"wider than the workspace", "", files, wantMount("/w/sub", "/x", rw), "/w/p.yaml:3", "mode: rw"},
		{"mount is not overridden", "", files, together(override, wantMount("/srv/data", "/x", rw)), "/w/p.yaml:5", ""},
		{"another's place", "", files, wantMount("/w/sub", "/data", ro), "/w/p.yaml:5", "another target"},
		{"over a place", "", "files: {mounts: [{source: /a, target: /x/y}, {source: /b}]}", wantMount("/b", "/x", ro), "/w/p.yaml:2", "another target"},
		{"over a place, by the working directory", "", "files: {mounts: [{source: /a, target: /x/b/y}, {source: /b}]}",
			together(wantMount("/b", "", ro), func(c *Call) { c.Cwd = "/x" }), "/w/p.yaml:2", "another target"},
		{"onto proc, by the working directory", "", "", together(wantMount("/self", "", ro), func(c *Call) { c.Cwd = "/proc" }), "built-in: valid requests", ""},
		{"twice", "", "", func(c *Call) { c.Mounts = []MountWish{{"/a", "/x", ro, false}, {"/b", "/x", ro, false}} }, "built-in: one mount for each target", ""},
		{"relative", "", "", wantMount("data", "/x", ro), "built-in: valid requests", "absolute"},
		{"onto proc", "", "", wantMount("/data", "/proc/self", ro), "built-in: valid requests", ""},
		{"git wider than the mount", "", "files: {mounts: [{source: /d, target: /d, mode: rw}]}", together(wantMount("/d", "/d", rw), gitWrite), "/w/p.yaml:2", "git: rw"},
		{"git wider than the file's own mount", "", "files: {mounts: [{source: /d, target: /d, mode: rw}]}", gitWrite, "/w/p.yaml:2", "git: rw"},
		{"git in no mount", "", "", gitWrite, "built-in: valid requests", "DIR:rw"},
		{"git in a mount that is read-only", "", "files: {mounts: [{source: /d}]}", gitWrite, "built-in: valid requests", "DIR:rw"},
		{"unknown access", "", "", wantMount("/data", "/x", 7), "built-in: valid requests", "ro, cow or rw"},
		{"by another", "", files, together(stranger, wantMount("/srv/data", "/x", ro)), "built-in: host paths", "volume"},
		{"workspace by another", "", files, together(stranger, func(c *Call) { c.Workspace = &MountWish{Source: "/w"} }), "built-in: host paths", ""},
		{"rootfs by another", "", "", together(stranger, func(c *Call) { c.Rootfs = "/w" }), "built-in: host paths", ""},
		{"toolchain by another", "", "", together(stranger, func(c *Call) { c.Toolchains = []string{"/w"} }), "built-in: host paths", ""},
		{"collect to a host path by another", "", "", together(stranger, func(c *Call) { c.Collect = []CollectWish{{"a", "/x"}} }), "built-in: host paths", ""},
		{"workspace wider", "", files, func(c *Call) { c.Workspace = &MountWish{"/w", "", rw, false} }, "/w/p.yaml:3", "mode: rw"},
		{"workspace elsewhere", "", files, func(c *Call) { c.Workspace = &MountWish{"/v", "", ro, false} }, "/w/p.yaml:2", "workspace"},
		{"file's mount against the system", "files: {mounts: [{source: /srv}]}", "files: {mounts: [{source: /srv/a, mode: rw}]}", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},
		{"file's mount without the system's", "user: user", "files: {mounts: [{source: ./a}]}", nil, "/etc/caisson/policy.yaml", "/w/a"},
		{"rootfs", "", "user: user", func(c *Call) { c.Rootfs = "/tree" }, "/w/p.yaml", "rootfs: /tree"},
		{"other rootfs", "", "files: {rootfs: /tree}", func(c *Call) { c.Rootfs = "/trees" }, "/w/p.yaml:2", "rootfs: /trees"},
		{"image", "", "user: user", wantImage("python:3"), "/w/p.yaml", "images: [python:3]"},
		{"image without the system's word", "user: user", "image: python:3", nil, "/etc/caisson/policy.yaml", "/w/p.yaml:2"},
		{"other image", "", "image: python:3", wantImage("python:4"), "/w/p.yaml:2", "image: python:4"},
		{"a digest beside the allowed tag", "", "image: python:3", wantImage("python:3@" + aDigest), "/w/p.yaml:2", ""},
		{"a tag without the allowed digest", "", "image: python@" + aDigest, wantImage("python:3"), "/w/p.yaml:2", ""},
		{"image of another registry", "", "images: ['acme/**']", wantImage("evil.org/acme/x"), "/w/p.yaml:2", "images"},
		{"image beyond the system's patterns", "images: [python]", "images: ['**']", wantImage("node"), "/etc/caisson/policy.yaml:2", "images"},
		{"a file where a registry is allowed", "", "images: ['**']", wantImage("/srv/x.tar"), "/w/p.yaml:2", "images"},
		{"another file", "", "image: ./x.tar", wantImage("/w/y.tar"), "/w/p.yaml:2", ""},
		{"image by another", "", "", together(stranger, wantImage("python")), "built-in: defaults", "ask the operator"},
		{"local image by another", "", "image: /srv/x", together(stranger, wantImage("/srv/x")), "built-in: host paths", ""},
		{"no image", "", "", wantImage("Python:"), "built-in: valid requests", "python:3.14"},
		{"relative image", "", "", wantImage("./x"), "built-in: valid requests", "absolute"},
		{"image and rootfs", "", "", together(wantImage("python"), func(c *Call) { c.Rootfs = "/t" }), "built-in: valid requests", "drop"},
		{"image and rootfs in a file", "", "image: python\nfiles: {rootfs: /t}", nil, "/w/p.yaml:2", "drop"},
		{"rootfs in place of the image", "", "image: python", func(c *Call) { c.Rootfs = "/t" }, "/w/p.yaml", "rootfs"},
		{"no TLS by another", "", "", together(stranger, func(c *Call) { c.InsecureRegistry = true }), "built-in: registries speak TLS", ""},
		{"toolchain", "", "files: {toolchains: [/opt/go]}", func(c *Call) { c.Toolchains = []string{"/opt/gopher"} }, "/w/p.yaml:2", "toolchains: [/opt/gopher]"},
		{"file's toolchain", "user: user", "files: {toolchains: [/opt/go]}", nil, "/etc/caisson/policy.yaml", "/w/p.yaml:2"},

		// What files.deny hides stays hidden.
		{"a denied file", "", "files: {mounts: [{source: /d, target: /d}], deny: ['**/.env']}", wantMount("/d/a/.env", "/x", ro), "/w/p.yaml:2", ""},
		{"below a denied directory", "", "files: {mounts: [{source: /d, target: /d}], deny: ['**/key*/**']}", wantMount("/d/keys/a", "/x", ro), "/w/p.yaml:2", ""},
		{"a denied place, moved", "", "files: {mounts: [{source: /d, target: /d}], deny: [/d/secret/*]}", wantMount("/d/secret", "/x", ro), "/w/p.yaml:2", "/d/secret"},
		{"moved as a whole", "", "files: {mounts: [{source: /d, target: /d}], deny: [/d/secret/*]}", wantMount("/d", "/x", ro), "/w/p.yaml:2", "target /d"},
		{"moved into the workspace", "", "files: {mounts: [{source: /d, target: /d}], deny: [/d/secret/*]}", func(c *Call) { c.Workspace = &MountWish{Source: "/d"} }, "/w/p.yaml:2", ""},
		{"system's denied file", "files: {mounts: [{source: /d}], deny: ['**/.env']}", "files: {mounts: [{source: /d/.env}]}", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},

		// Paths inside, what goes out.
		{"writable", "", "files: {writable: [/tmp]}", func(c *Call) { c.Writable = []string{"/home/user"} }, "/w/p.yaml:2", "/home/user"},
		{"writable beside the default", "", "user: user", func(c *Call) { c.Writable = []string{"/tmpx"} }, "/w/p.yaml", "/tmpx"},
		{"writable root", "", "", func(c *Call) { c.Writable = []string{"/"} }, "built-in: valid requests", ""},
		{"collect", "", "user: user", func(c *Call) { c.Collect = []CollectWish{{Pattern: "out/*"}} }, "/w/p.yaml", `collect: ["out/*"]`},
		{"collect wider", "", "files: {collect: [out/*]}", func(c *Call) { c.Collect = []CollectWish{{Pattern: "out/**"}} }, "/w/p.yaml:2", ""},
		{"collect by another", "", "", together(stranger, func(c *Call) { c.Collect = []CollectWish{{Pattern: "a"}} }), "built-in: defaults", ""},
		{"file's collect", "user: user", "files: {collect: [out/*]}", nil, "/etc/caisson/policy.yaml", "/w/p.yaml:2"},
		{"collect to a relative path", "", "", func(c *Call) { c.Collect = []CollectWish{{"a", "pics"}} }, "built-in: valid requests", "absolute"},
		{"bad deny", "", "", func(c *Call) { c.Deny = []string{"[a]"} }, "built-in: valid requests", ""},

		// Environment.
		{"env", "", "user: user", wantEnv("A", "secret-value"), "/w/p.yaml", "env: {pass: [A]}"},
		{"a terminal's, but not plain", "", "user: user", wantEnv("TERM", "/tmp/evil"), "/w/p.yaml", "env: {pass: [TERM]}"},
		{"a plain one that is set otherwise", "", "env: {set: {LANG: C}}", wantEnv("LANG", "C.UTF-8"), "/w/p.yaml:2", "env: {pass: [LANG]}"},
		{"env with another value", "", "env: {set: {A: x}}", wantEnv("A", "secret-value"), "/w/p.yaml:2", "pass: [A]"},
		{"env without a name", "", "", wantEnv("", "x"), "built-in: valid requests", ""},
		{"env with =", "", "", wantEnv("A=B", "x"), "built-in: valid requests", ""},
		{"any env beside one that is set", "", "env: {any: true, set: {A: x}}", wantEnv("A", "secret-value"), "/w/p.yaml:2", "pass: [A]"},
		{"any env, but one without a name", "", "env: {any: true}", wantEnv("A=B", "x"), "built-in: valid requests", ""},
		{"file's any env", "env: {pass: [A]}", "env: {any: true}", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},
		{"what the system's any env passes of the host", "env: {any: true}", "env: {pass: [A]}", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},
		{"any env of the system alone", "env: {any: true}", "env: {set: {B: x}}", wantEnv("A", "x"), "/w/p.yaml:2", "env: {pass: [A]}"},
		{"file's env", "user: user", "env: {pass: [A]}", nil, "/etc/caisson/policy.yaml", "/w/p.yaml:2"},
		{"file's set", "env: {set: {A: x}}", "env: {set: {A: y}}", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},

		// Switches.
		{"root", "", "isolation: gvisor", root, "/w/p.yaml", "user: sudoer"},
		{"root where the user is named", "", "user: user", root, "/w/p.yaml:2", "user: sudoer"},
		{"root by another", "", "", together(stranger, root), "built-in: defaults", ""},
		{"root by a template", "", "isolation: gvisor", together(stranger, sudo), "/w/p.yaml", "user: sudoer"},
		{"root by a template, under a silent system", "isolation: gvisor", "", together(stranger, sudo), "/etc/caisson/policy.yaml", "user: sudoer"},
		{"a template's root, where the file is silent under a system with one", "user: sudoer", "isolation: gvisor", together(stranger, sudo), "/w/p.yaml", "user: sudoer"},
		{"root by name under another's word", "user: sudoer", "user: user", root, "/w/p.yaml:2", "user: sudoer"},
		{"root by a stranger, whom the system bounds", "user: sudoer", "", together(stranger, root), "built-in: defaults", "ask the operator"},
		{"file's sudoer", "user: user", "user: sudoer", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},
		{"file's sudoer under a silent system", "isolation: gvisor", "user: sudoer", nil, "/etc/caisson/policy.yaml", "/w/p.yaml:2"},
		{"file's root under a sudoer", "user: sudoer", "user: root", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},
		{"root by another, under the system's bound", "user: root", "", together(stranger, root), "built-in: defaults", "ask the operator"},
		{"file's root", "user: user", "user: root", nil, "/etc/caisson/policy.yaml:2", "/w/p.yaml:2"},
		{"best effort", "", "user: user", bestEffort, "/w/p.yaml", "best_effort: true"},
		{"file's best effort", "user: user", "best_effort: true", nil, "/etc/caisson/policy.yaml", ""},

		// Requests that cannot be meant.
		{"kind", "", "", func(c *Call) { c.Kind = "" }, "built-in: valid requests", "run_command"},
		{"no command", "", "", func(c *Call) { c.Argv = nil }, "built-in: valid requests", ""},
		{"no language", "", "", func(c *Call) { c.Kind = RunCode }, "built-in: valid requests", ""},
		{"NUL in an argument", "", "", func(c *Call) { c.Argv = []string{"a\x00"} }, "built-in: valid requests", ""},
		{"cwd", "", "", func(c *Call) { c.Cwd = "../x" }, "built-in: valid requests", ""},
		{"override without a file", "", "", override, "built-in: valid requests", "--policy"},
		{"override of the system's alone", "limits: {memory: 512MiB}", "", override, "built-in: valid requests", "--policy"},
		{"deny without a mount", "", "", func(c *Call) { c.Deny = []string{"**/.env"} }, "built-in: valid requests", "--mount or --workspace"},
		{"deny where only the system has mounts", files, "user: user", func(c *Call) { c.Deny = []string{"**/.env"} }, "built-in: valid requests", "--mount or --workspace"},
		{"too many wishes", "", "", func(c *Call) { c.Deny = make([]string, maxWishes+1) }, "built-in: valid requests", ""},
		{"a panic", "", "env: {pass: [A]}", func(c *Call) { c.Lookup = func(string) (string, bool) { panic("x") } }, "built-in: internal fault", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := policyOf(t, tc.system, tc.file).Decide(command(tc.call))
			if v.Decision != Deny {
				t.Fatalf("%v under plan %+v", v.Decision, v.Plan)
			}
			if v.Rule != tc.rule || !strings.Contains(v.Hint, tc.hint) || v.Reason == "" {
				t.Errorf("rule %q, reason %q, hint %q; want rule %q, hint with %q", v.Rule, v.Reason, v.Hint, tc.rule, tc.hint)
			}
			if strings.Contains(v.Reason+v.Hint, "secret-value") {
				t.Errorf("a value of the environment is in the message: %q %q", v.Reason, v.Hint)
			}
			if diff := cmp.Diff(Plan{}, v.Plan); diff != "" {
				t.Errorf("a denied call has a plan: %s", diff)
			}
			kind := sandbox.ErrDenied
			if tc.rule == ruleValid { // another policy would not let it through
				kind = sandbox.ErrInvalid
			}
			if err := v.Err(); !errors.Is(err, kind) || v.Invalid() != (kind == sandbox.ErrInvalid) || sandbox.Hint(err) != v.Hint {
				t.Errorf("error %v, want one of kind %v", err, kind)
			}
		})
	}
}

// TestZeroIsDeny: nothing said is no.
func TestZeroIsDeny(t *testing.T) {
	var p *Policy
	for name, v := range map[string]Verdict{
		"verdict": {}, "nil policy": p.Decide(command(nil)), "zero policy": (&Policy{}).Decide(command(nil)),
		"nil call": policyOf(t, "", "").Decide(nil),
	} {
		if v.Decision != Deny || v.Err() == nil {
			t.Errorf("%s: %v", name, v.Decision)
		}
	}
}

// TestAllowed is what the plan is for calls that pass.
func TestAllowed(t *testing.T) {
	ro, cow, rw := sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite
	memory := func(p Plan) any { return []any{p.Limits.Memory, p.Limits.Explicit["memory"], p.From["limits.memory"]} }
	mounts := func(p Plan) any { return p.Mounts }
	beneathOf := func(source string, by ...string) PlanPath { return PlanPath{source, by} }
	lookup := func(name string) (string, bool) { return "host " + name, name != "UNSET" }
	for _, tc := range []struct {
		name         string
		system, file string
		call         func(*Call)
		got          func(Plan) any
		want         any
	}{
		{"defaults", "", "", nil, memory, []any{int64(256 << 20), false, "default"}},
		{"flags are the policy", "", "", wantLimit("memory", gib), memory, []any{int64(gib), true, "flag"}},
		{"file", "", "limits: {memory: 1GiB}", nil, memory, []any{int64(gib), true, "/w/p.yaml:2"}},
		{"lower", "", "limits: {memory: 1GiB}", wantLimit("memory", 5), memory, []any{int64(5), true, "flag"}},
		{"system bounds the default", "limits: {memory: 1MiB}", "", nil, memory, []any{int64(1 << 20), true, "/etc/caisson/policy.yaml:2"}},
		{"system grants nothing", "limits: {memory: 2GiB}", "", nil, memory, []any{int64(256 << 20), false, "default"}},
		{"a flag within the system", "limits: {memory: 2GiB}", "", wantLimit("memory", gib), memory, []any{int64(gib), true, "flag"}},
		{"override", "", "limits: {memory: 1MiB}", together(override, wantLimit("memory", gib)), memory, []any{int64(gib), true, "flag"}},
		{
			"override is recorded", "limits: {memory: 1GiB}", "limits: {memory: 1MiB}", together(override, wantLimit("memory", gib)),
			func(p Plan) any { return p.Overridden }, []string{"limits.memory: 1GiB instead of 1MiB (/w/p.yaml:2)"},
		},
		{
			"a needless override is not", "", "limits: {memory: 1GiB}", together(override, wantLimit("memory", 5)),
			func(p Plan) any { return p.Overridden }, []string(nil),
		},
		{
			"a limit without a default", "", "user: user", wantLimit("cpu_time", 1e9),
			func(p Plan) any { return []any{p.Limits.CPUTime, p.Limits.Explicit} },
			[]any{time.Second, map[sandbox.LimitName]bool{"cpu_time": true}},
		},
		{
			"kill is tighter", "", "limits: {on_output: truncate}", func(c *Call) {
				c.Limits = sandbox.Limits{OutputKill: true, Explicit: map[sandbox.LimitName]bool{"on_output": true}}
			},
			func(p Plan) any { return []any{p.Limits.OutputKill, p.Limits.Explicit} }, []any{true, map[sandbox.LimitName]bool{}},
		},
		{
			"isolation", "", "isolation: process", nil,
			func(p Plan) any { return []string{p.Isolation, p.From["isolation"]} }, []string{"process", "/w/p.yaml:2"},
		},
		{"isolation by flag", "", "", func(c *Call) { c.Isolation = "process" }, func(p Plan) any { return p.Isolation }, "process"},
		{"stronger", "", "user: user", func(c *Call) { c.Isolation = "vm" }, func(p Plan) any { return p.Isolation }, "vm"},
		{"the same", "", "isolation: e2b", func(c *Call) { c.Isolation = "e2b" }, func(p Plan) any { return p.Isolation }, "e2b"},

		{
			"file's mounts and a flag's", "", "files: {mounts: [{source: ./a, target: /a, mode: rw}]}", wantMount("/w/a/b/", "", cow), mounts,
			[]PlanMount{
				{PlanPath: beneathOf("/w/a"), Target: "/a", Access: rw, From: "/w/p.yaml:2"},
				{PlanPath: beneathOf("/w/a/b", "/w/a"), Access: cow, From: "flag"},
			},
		},
		{
			"narrowing a mount", "", "files: {mounts: [{source: ./a, target: /a, mode: rw}]}", wantMount("/w/a", "/a", ro), mounts,
			[]PlanMount{{PlanPath: beneathOf("/w/a", "/w/a"), Target: "/a", Access: ro, From: "flag"}},
		},
		{
			"both layers cover", "files: {mounts: [{source: /, mode: rw}]}", "files: {mounts: [{source: /d, target: /d}]}", wantMount("/d/e", "/e", ro), mounts,
			[]PlanMount{
				{PlanPath: beneathOf("/d", "/"), Target: "/d", From: "/w/p.yaml:2"},
				{PlanPath: beneathOf("/d/e", "/", "/d"), Target: "/e", From: "flag"},
			},
		},
		{"no file, any mount", "", "", wantMount("/d", "/e", rw), mounts, []PlanMount{{PlanPath: beneathOf("/d"), Target: "/e", Access: rw, From: "flag"}}},
		{
			"kept place under deny", "", "files: {mounts: [{source: /d, target: /d}], deny: [/d/secret/*]}", wantMount("/d/secret", "/d/secret", ro),
			func(p Plan) any { return len(p.Mounts) }, 2,
		},
		{
			"deny of another place", "", "files: {mounts: [{source: /d, target: /d}], deny: [/e/*, '**/.*']}", wantMount("/d/a", "/x", ro),
			func(p Plan) any { return len(p.Mounts) }, 2,
		},
		{
			"workspace", "", "files: {workspace: {source: ., mode: rw}}", nil,
			func(p Plan) any { return *p.Workspace }, PlanMount{PlanPath: beneathOf("/w"), Access: rw, From: "/w/p.yaml:2"},
		},
		{
			"workspace with git", "", "files: {workspace: {source: ., mode: rw, git: rw}}", nil,
			func(p Plan) any { return *p.Workspace }, PlanMount{PlanPath: beneathOf("/w"), Access: rw, GitWrite: true, From: "/w/p.yaml:2"},
		},
		{
			"workspace with git narrowed", "", "files: {workspace: {source: ., mode: rw, git: rw}}", func(c *Call) { c.Git = GitReadOnly },
			func(p Plan) any { return *p.Workspace }, PlanMount{PlanPath: beneathOf("/w"), Access: rw, From: "/w/p.yaml:2"},
		},
		{
			"a call's mount with git", "", "files: {mounts: [{source: /d, target: /d, mode: rw, git: rw}]}", together(wantMount("/d", "/d", rw), gitWrite),
			func(p Plan) any { return p.Mounts[0].GitWrite }, true,
		},
		{
			"a call's mount has none of its own", "", "files: {mounts: [{source: /d, target: /d, mode: rw, git: rw}]}", wantMount("/d", "/d", rw),
			func(p Plan) any { return p.Mounts[0].GitWrite }, false,
		},
		{
			"workspace narrowed", "", "files: {workspace: {source: ., mode: rw}}", func(c *Call) { c.Workspace = &MountWish{"/w/sub", "", cow, false} },
			func(p Plan) any { return *p.Workspace }, PlanMount{PlanPath: beneathOf("/w/sub", "/w"), Access: cow, From: "flag"},
		},
		{
			"system's workspace is a bound", "files: {workspace: {source: /w}}", "", nil,
			func(p Plan) any { return p.Workspace }, (*PlanMount)(nil),
		},
		{
			"trees", "", "files: {toolchains: [/opt/go], rootfs: ./tree}", func(c *Call) { c.Toolchains, c.Rootfs = []string{"/opt/go", "/opt/go/bin"}, "/w/tree/a" },
			func(p Plan) any { return []any{p.Toolchains, *p.Rootfs} },
			[]any{[]PlanPath{beneathOf("/opt/go"), beneathOf("/opt/go/bin", "/opt/go")}, beneathOf("/w/tree/a", "/w/tree")},
		},
		{"image of the file", "", "image: python", nil, anImage, []any{"docker.io/library/python:latest", "/w/p.yaml:2"}},
		{"the same image", "image: docker.io/library/python:latest", "image: python", wantImage("python:latest"), anImage, []any{"docker.io/library/python:latest", "flag"}},
		{"image of a pattern", "images: ['**']", "images: ['python:3.*', acme/x]", wantImage("python:3.14"), anImage, []any{"docker.io/library/python:3.14", "flag"}},
		{"the allowed digest", "", "image: python@" + aDigest, wantImage("python:3@" + aDigest), anImage, []any{"docker.io/library/python:3@" + aDigest, "flag"}},
		{"any image without files", "", "", wantImage("/srv/x"), anImage, []any{"/srv/x", "flag"}},
		{"image by another within the file", "", "image: python", together(stranger, wantImage("python")), anImage, []any{"docker.io/library/python:latest", "flag"}},
		{"system's image is a bound", "image: python", "", nil, anImage, []any{}},
		{
			"local image", "", "image: ./x.tar", nil, func(p Plan) any { return *p.Image },
			PlanImage{Ref: "/w/x.tar", Path: &PlanPath{Source: "/w/x.tar"}},
		},
		{"no command, but an image", "", "", together(wantImage("python"), func(c *Call) { c.Argv = nil }), anImage, []any{"docker.io/library/python:latest", "flag"}},
		{"writable default", "", "", nil, func(p Plan) any { return p.Writable }, DefaultWritable()},
		{"writable of the file", "", "files: {writable: []}", nil, func(p Plan) any { return p.Writable }, []string(nil)},
		{"writable within the system", "files: {writable: [/tmp]}", "", nil, func(p Plan) any { return p.Writable }, []string{"/tmp"}},
		{"writable flag", "", "", func(c *Call) { c.Writable = []string{"/tmp/a", "/var/x"} }, func(p Plan) any { return p.Writable }, append(DefaultWritable(), "/var/x")},
		{
			"denials add up", "files: {mounts: [{source: /a, target: /x}], deny: [a, b]}", "files: {mounts: [{source: /a, target: /x}], deny: [b, c]}", func(c *Call) { c.Deny = []string{"c", "d"} },
			func(p Plan) any { return p.Deny }, []string{"a", "b", "c", "d"},
		},
		{
			"collect", "", "files: {collect: ['out/**']}", func(c *Call) { c.Collect = []CollectWish{{"out/a/*.png", "/pics"}} },
			func(p Plan) any { return p.Collect }, []CollectWish{{"out/a/*.png", "/pics"}},
		},
		{
			"env", "", "env: {pass: [LANG, UNSET, TERM], set: {MODE: test}}",
			together(wantEnv("TERM", "dumb"), func(c *Call) { c.Lookup = lookup }),
			func(p Plan) any { return p.Env }, map[string]string{"LANG": "host LANG", "TERM": "dumb", "MODE": "test"},
		},
		{"env with the same value", "", "env: {set: {A: x}}", wantEnv("A", "x"), func(p Plan) any { return p.Env }, map[string]string{"A": "x"}},
		{"a terminal's", "user: user", "user: user", wantEnv("TERM", "xterm-256color"), func(p Plan) any { return p.Env }, map[string]string{"TERM": "xterm-256color"}},
		{"env without a file", "", "", wantEnv("A", "x"), func(p Plan) any { return p.Env }, map[string]string{"A": "x"}},
		{"no environment unasked", "", "", func(c *Call) { c.Lookup = lookup }, func(p Plan) any { return p.Env }, map[string]string{}},
		{"any env", "env: {any: true}", "env: {any: true, set: {A: x}}", together(stranger, wantEnv("LD_PRELOAD", "y")), func(p Plan) any { return p.Env }, map[string]string{"A": "x", "LD_PRELOAD": "y"}},
		{"any env passes nothing", "", "env: {any: true}", func(c *Call) { c.Lookup = lookup }, func(p Plan) any { return p.Env }, map[string]string{}},
		{"a sudoer", "user: root", "user: sudoer", nil, rootOf, []any{false, true, "/w/p.yaml:2"}},
		{"a sudoer's root", "user: root", "user: sudoer", together(stranger, root), rootOf, []any{true, true, "flag"}},
		{"a sudoer's root by flag", "user: sudoer", "", root, rootOf, []any{true, false, "flag"}},
		{"a sudoer's sandbox", "user: sudoer", "user: sudoer", together(stranger, sudo), rootOf, []any{false, true, "/w/p.yaml:2"}},
		{"a template's, where the system has a sudoer", "user: sudoer", "", together(stranger, sudo), rootOf, []any{false, false, nil}},
		{"root", "", "user: root", nil, func(p Plan) any { return p.Root }, true},
		{"root by flag", "user: root", "", root, func(p Plan) any { return p.Root }, true},
		{"root by a template", "", "", together(stranger, sudo), func(p Plan) any { return p.Root }, false},
		{"root where a template has it", "", "", together(stranger, sudo, root), func(p Plan) any { return p.Root }, true},
		{"system's root is a bound", "user: root", "", nil, func(p Plan) any { return p.Root }, false},
		{"best effort", "", "best_effort: true", nil, func(p Plan) any { return p.BestEffort }, true},
		{"watch of both", "watch: [{when: processes > 5}]", "watch: [{when: disk > 1MiB}]", nil, func(p Plan) any { return len(p.Watch) }, 2},
		{"code by another", "", "", func(c *Call) { *c = Call{Kind: RunCode, Language: "python"} }, func(p Plan) any { return p.Isolation }, "gvisor"},
		{"lower by another", "", "", together(stranger, wantLimit("memory", 5)), memory, []any{int64(5), true, "flag"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := policyOf(t, tc.system, tc.file).Decide(command(tc.call))
			if v.Decision != Allow || v.Err() != nil {
				t.Fatalf("%v: %s: %s (%s)", v.Decision, v.Rule, v.Reason, v.Hint)
			}
			if diff := cmp.Diff(tc.want, tc.got(v.Plan)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestDigest: places and comments do not count, every value does.
func TestDigest(t *testing.T) {
	same := policyOf(t, "", "limits: {wall: 3s, memory: 1GiB}").Digest()
	if got := policyOf(t, "", "# why\nlimits:\n  memory: 1024MiB\n  wall: 3000ms\n").Digest(); got != same {
		t.Errorf("%s and %s for the same content", same, got)
	}
	seen := map[string]string{same: "first"}
	for _, src := range []string{
		"image: a", "image: b", "images: [a]", "images: [a, b]", "limits: {wall: 3s}", "limits: {wall: 4s}", "limits: {on_output: kill}", "user: root", "user: sudoer", "env: {any: true}", "best_effort: true", "isolation: vm",
		"files: {writable: []}", "files: {deny: [a]}", "files: {collect: [a]}", "files: {toolchains: [/a]}", "files: {rootfs: /a}",
		"files: {mounts: [{source: /a}]}", "files: {mounts: [{source: /a, mode: rw}]}", "files: {workspace: {source: /a}}",
		"env: {pass: [a]}", "env: {set: {a: b}}", "env: {set: {a: c}}", "watch: [{when: disk > 5}]", "watch: [{when: disk > 6}]", "network: {}",
	} {
		for _, d := range []string{policyOf(t, "", src).Digest(), policyOf(t, src, "").Digest()} {
			if other, twice := seen[d]; twice {
				t.Errorf("%q and %q have one digest", other, src)
			}
			seen[d] = src
		}
	}
	if _, err := New(Options{File: &File{Name: "p.yaml", Dir: ".", Files: Files{Mounts: []Mount{{Source: "a"}}}}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a relative directory: %v", err)
	}
}

// rootOf is who code runs as in a plan, and whose word it is.
func rootOf(p Plan) any {
	if from := p.From["user"]; from != "" {
		return []any{p.Root, p.Sudoer, from}
	}
	return []any{p.Root, p.Sudoer, nil}
}

const aDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func wantImage(ref string) func(*Call) { return func(c *Call) { c.Image = ref } }

// anImage is what image a plan has, and whose word it is.
func anImage(p Plan) any {
	if p.Image == nil {
		return []any{}
	}
	return []any{p.Image.Ref, p.From["image"]}
}
