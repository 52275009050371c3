// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/google/go-cmp/cmp"
)

// TestFileWithinSystem pairs what a system file says with what a policy file
// says: whether calls pass at all, and if not, by which of the two lines.
func TestFileWithinSystem(t *testing.T) {
	for _, tc := range []struct {
		system, file string
		ok           bool
	}{
		{"isolation: gvisor", "isolation: gvisor", true},
		{"isolation: gvisor", "user: user", true},
		{"isolation: gvisor", "isolation: vm", false},
		{"user: user", "isolation: vm", true},
		{"user: user", "isolation: process", false},
		{"user: user", "isolation: modal", false},
		{"user: root", "user: root", true},
		{"user: root", "user: user", true},
		{"user: root", "user: sudoer", true},
		{"user: sudoer", "user: sudoer", true},
		{"user: sudoer", "user: user", true},
		{"user: sudoer", "isolation: gvisor", true},
		{"user: sudoer", "user: root", false},
		{"user: user", "user: sudoer", false},
		{"isolation: gvisor", "user: sudoer", false},
		{"best_effort: true", "best_effort: true", true},
		{"best_effort: false", "best_effort: true", false},

		{"limits: {memory: 1GiB}", "limits: {memory: 1GiB}", true},
		{"limits: {memory: 1GiB}", "limits: {memory: 1025MiB}", false},
		{"user: user", "limits: {memory: 256MiB}", true},
		{"user: user", "limits: {file_size: 1PiB}", true},
		{"limits: {file_size: 1GiB}", "limits: {file_size: 1PiB}", false},
		{"limits: {on_output: kill}", "limits: {on_output: truncate}", false},
		{"limits: {on_output: kill}", "limits: {on_output: kill}", true},
		{"limits: {on_output: truncate}", "limits: {on_output: kill}", true},

		{"files: {mounts: [{source: /d, mode: cow}]}", "files: {mounts: [{source: /d/a, target: /x}]}", true},
		{"files: {mounts: [{source: /d, mode: cow}]}", "files: {workspace: {source: /d/a, mode: cow}}", true},
		{"files: {mounts: [{source: /d, mode: cow}]}", "files: {workspace: {source: /d/a, mode: rw}}", false},
		{"files: {workspace: {source: /d}}", "files: {mounts: [{source: /da}]}", false},
		{"files: {mounts: [{source: /d, mode: rw}, {source: /d/a}]}", "files: {mounts: [{source: /d/a/b, mode: rw}]}", false},
		{"files: {mounts: [{source: /d, target: /d}], deny: [/d/s/*]}", "files: {mounts: [{source: /d/s, target: /d/s}]}", true},
		{"files: {mounts: [{source: /d, target: /d}], deny: [/d/s/*]}", "files: {mounts: [{source: /d/s, target: /s}]}", false},
		{"files: {mounts: [{source: /d, mode: rw}]}", "files: {workspace: {source: /d/a, mode: rw, git: rw}}", false},
		{"files: {mounts: [{source: /d, mode: rw, git: rw}]}", "files: {workspace: {source: /d/a, mode: rw, git: rw}}", true},
		{"files: {toolchains: [/opt]}", "files: {toolchains: [/opt/go]}", true},
		{"files: {toolchains: [/opt/go]}", "files: {toolchains: [/opt]}", false},
		{"files: {rootfs: /t}", "files: {rootfs: /t/a}", true},
		{"files: {rootfs: /t/a}", "files: {rootfs: /t}", false},
		{"user: user", "files: {rootfs: /t}", false},
		{"user: user", "image: python", false},
		{"image: python", "image: python", true},
		{"images: ['python:*']", "image: python:3", true},
		{"images: ['python:*']", "image: node", false},
		{"files: {writable: [/tmp]}", "files: {writable: [/tmp/a]}", true},
		{"files: {writable: [/tmp]}", "files: {writable: [/tmpx]}", false},
		{"user: user", "files: {writable: [/dev/shm]}", true},
		{"user: user", "files: {writable: [/var]}", false},
		{"files: {collect: ['**']}", "files: {collect: ['out/**', a]}", true},
		{"files: {collect: ['out/*']}", "files: {collect: ['**']}", false},
		{"files: {deny: [a]}", "files: {deny: [b]}", true},

		{"env: {any: true}", "env: {any: true}", true},
		{"env: {any: true}", "env: {set: {A: x}}", true},
		{"env: {any: true}", "env: {pass: [A]}", false},
		{"env: {any: true, pass: [A]}", "env: {any: true, pass: [A]}", true},
		{"env: {any: true, set: {A: x}}", "env: {set: {A: y}}", false},
		{"env: {any: false}", "env: {any: true}", false},
		{"env: {pass: [A]}", "env: {any: true}", false},
		{"isolation: gvisor", "env: {any: true}", false},
		{"isolation: gvisor", "env: {any: false}", true},
		{"commands: {allow: [ls]}", "env: {any: true}", false},
		{"env: {pass: [A]}", "env: {pass: [A]}", true},
		{"env: {pass: [A]}", "env: {set: {A: x}}", true},
		{"env: {set: {A: x}}", "env: {set: {A: x}}", true},
		{"env: {set: {A: x}}", "env: {set: {A: y}}", false},
		{"env: {set: {A: x}}", "env: {pass: [A]}", false},
		{"env: {pass: [B]}", "env: {pass: [A]}", false},
		{"watch: [{when: disk > 5}]", "watch: [{when: disk > 6}]", true},
	} {
		v := policyOf(t, tc.system, tc.file).Decide(command(nil))
		if (v.Decision == Allow) != tc.ok {
			t.Errorf("%s with %s: %v %s", tc.system, tc.file, v.Decision, v.Reason)
		}
		// Nothing that the operator says gets around it.
		forced := policyOf(t, tc.system, tc.file).Decide(command(override))
		if forced.Decision != v.Decision {
			t.Errorf("%s with %s: %v, with override %v", tc.system, tc.file, v.Decision, forced.Decision)
		}
		if !tc.ok && (!strings.HasPrefix(v.Rule, "/etc/caisson/policy.yaml") || !strings.Contains(v.Reason, "/w/p.yaml:2")) {
			t.Errorf("%s with %s: rule %q, reason %q: both lines must be named", tc.system, tc.file, v.Rule, v.Reason)
		}
	}
}

// TestSameFileTwice: a file is within itself, with everything it can say.
func TestSameFileTwice(t *testing.T) {
	src, err := os.ReadFile("testdata/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.TrimPrefix(string(src), "version: 1\n")
	system, err := Parse("/w/system.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{System: system, File: parse(t, "/w/p.yaml", all)})
	if err != nil {
		t.Fatal(err)
	}
	v := p.Decide(command(together(root, bestEffort, override, func(c *Call) {
		c.Workspace = &MountWish{Source: "/w", Access: sandbox.CopyOnWrite}
		c.Toolchains, c.Rootfs, c.Writable = []string{"/opt/go/x"}, "/w/tree", []string{"/tmp/a"}
		c.Collect = []CollectWish{{"out/a", "/pics"}}
	})))
	if v.Decision != Allow {
		t.Fatalf("%s: %s", v.Rule, v.Reason)
	}
	if diff := cmp.Diff([]string{"/w", "/w"}, v.Plan.Workspace.Beneath); diff != "" {
		t.Errorf("both layers' sources bound the object: %s", diff)
	}
	if len(v.Plan.Watch) != 4 || len(v.Plan.Overridden) != 0 || !v.Plan.Root || !v.Plan.BestEffort {
		t.Errorf("plan %+v", v.Plan)
	}
}

// TestOnOutput settles truncate and kill over all layers; kill is tighter.
func TestOnOutput(t *testing.T) {
	for _, tc := range []struct {
		defaultKill            bool
		system, file, flag     string // "", "kill" or "truncate"
		override               bool
		kill, denied, recorded bool
	}{
		{},
		{flag: "kill", kill: true},
		{flag: "truncate"},
		{file: "kill", kill: true},
		{file: "kill", flag: "kill", kill: true},
		{file: "kill", flag: "truncate", denied: true},
		{file: "kill", flag: "truncate", override: true, recorded: true},
		{file: "truncate", flag: "kill", kill: true},
		{system: "kill", kill: true},
		{system: "kill", flag: "truncate", denied: true},
		{system: "kill", flag: "truncate", override: true, denied: true},
		{system: "kill", file: "kill", flag: "truncate", override: true, denied: true},
		{system: "truncate", file: "kill", kill: true},
		{defaultKill: true, kill: true},
		{defaultKill: true, file: "truncate"},
		{defaultKill: true, file: "wall", flag: "truncate", denied: true},
		{defaultKill: true, flag: "truncate"},
	} {
		layer := func(name, says string) *File {
			switch says {
			case "":
				return nil
			case "wall":
				return parse(t, name, "limits: {wall: 3s}")
			}
			return parse(t, name, "limits: {on_output: "+says+"}")
		}
		p, err := New(Options{
			System: layer("/etc/caisson/policy.yaml", tc.system), File: layer("/w/p.yaml", tc.file), Defaults: sandbox.Limits{OutputKill: tc.defaultKill},
		})
		if err != nil {
			t.Fatal(err)
		}
		v := p.Decide(command(func(c *Call) {
			c.Override = tc.override
			if tc.flag != "" {
				c.Limits = sandbox.Limits{OutputKill: tc.flag == "kill", Explicit: map[sandbox.LimitName]bool{limitOnOutput: true}}
			}
		}))
		got := []bool{v.Plan.Limits.OutputKill, v.Decision != Allow, len(v.Plan.Overridden) > 0}
		if diff := cmp.Diff([]bool{tc.kill, tc.denied, tc.recorded}, got); diff != "" {
			t.Errorf("%+v: kill, denied, recorded (-want +got)\n%s", tc, diff)
		}
	}
}

// TestDefaults: limits given to New stand in for the built-in ones, whole.
func TestDefaults(t *testing.T) {
	p, err := New(Options{Defaults: sandbox.Limits{Memory: 5 << 20, Explicit: map[sandbox.LimitName]bool{"memory": true}}})
	if err != nil {
		t.Fatal(err)
	}
	v := p.Decide(command(nil))
	if l := v.Plan.Limits; l.Memory != 5<<20 || !l.Explicit["memory"] || l.Wall != 0 || v.Plan.From["limits.memory"] != "default" {
		t.Errorf("%+v", l)
	}
	if v := p.Decide(command(together(stranger, wantLimit("memory", 6<<20)))); v.Decision != Deny {
		t.Error("another raised the default")
	}
	// What is in force never changes what the next call gets.
	v.Plan.Limits.Explicit["wall"], v.Plan.From["x"], v.Plan.Env["x"] = true, "x", "x"
	if again := p.Decide(command(nil)).Plan; again.Limits.Explicit["wall"] || again.From["x"] != "" || len(again.Env) != 0 {
		t.Errorf("plans share memory: %+v", again)
	}
}

// TestPlanJSON: a plan can be recorded, without the environment's values.
func TestPlanJSON(t *testing.T) {
	v := policyOf(t, "", "env: {set: {TOKEN: hush}}\nfiles: {mounts: [{source: /d, mode: rw}]}").Decide(command(nil))
	b, err := json.Marshal(v.Plan)
	if err != nil || strings.Contains(string(b), "hush") || !strings.Contains(string(b), `"source":"/d"`) {
		t.Errorf("%v: %s", err, b)
	}
	for d, want := range map[Decision]string{Deny: "deny", Allow: "allow", Ask: "ask", 9: "deny"} {
		if d.String() != want {
			t.Errorf("decision %d is %s", d, d)
		}
	}
}
