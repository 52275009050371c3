// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"pgregory.net/rapid"
)

// Few values, so that wishes and files meet.
var (
	somePaths   = []string{"/d", "/d/a", "/d/a/b", "/data", "/d/.env", "/d/a/.env", "/w", "/w/sub"}
	someTargets = []string{"", "/d", "/d/a", "/x", "/x/y", "/data"}
	someNames   = []string{"A", "B", "LANG"}
	someWords   = []string{"x", "y"}
	someGlobs   = []string{"**/.env", "/d/a/*", "/x/**", "out/**", "out/*", "a*", "**/a/**"}
	someInside  = []string{"/tmp", "/tmp/a", "/home/user", "/var"}
)

func pick[T any](t *rapid.T, from []T, label string) T { return rapid.SampledFrom(from).Draw(t, label) }

func some[T any](t *rapid.T, from []T, label string) []T {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 2).Draw(t, label)
}

func coin(t *rapid.T, label string) bool { return rapid.Bool().Draw(t, label) }

// drawFile writes a policy file and reads it back; nil now and then.
func drawFile(t *rapid.T, name string) *File {
	if rapid.IntRange(0, 4).Draw(t, "none") == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("version: 1\n")
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if coin(t, "isolation") {
		line("isolation: %s", pick(t, Isolations(), "level"))
	}
	if rapid.IntRange(0, 3).Draw(t, "image") == 0 {
		line("image: %s", pick(t, someImages, "image"))
	}
	if coin(t, "images") {
		line("images: [%s]", pick(t, []string{"python", "'**'", "'python:3*'"}, "images"))
	}
	if coin(t, "user") {
		line("user: %s", pick(t, users, "user"))
	}
	if coin(t, "best effort") {
		line("best_effort: true")
	}
	line("limits:\n  wall: %ds", rapid.IntRange(1, 60).Draw(t, "wall"))
	if coin(t, "memory") {
		line("  memory: %dMiB", rapid.IntRange(1, 512).Draw(t, "memory"))
	}
	if coin(t, "on_output") {
		line("  on_output: %s", pick(t, []string{"kill", "truncate"}, "on_output"))
	}
	line("files:\n  deny: [%s]", quoted(some(t, someGlobs, "deny")))
	line("  collect: [%s]", quoted(some(t, someGlobs, "collect")))
	line("  toolchains: [%s]", quoted(some(t, somePaths, "toolchains")))
	if coin(t, "rootfs") {
		line("  rootfs: %s", pick(t, somePaths, "rootfs"))
	}
	if coin(t, "writable") {
		line("  writable: [%s]", quoted(some(t, someInside, "writable")))
	}
	if coin(t, "workspace") {
		line("  workspace: {source: %s, mode: %s}", pick(t, somePaths, "workspace"), pick(t, accessWords(), "mode"))
	}
	line("  mounts: [")
	for range rapid.IntRange(0, 3).Draw(t, "mounts") {
		target := pick(t, someTargets, "target")
		if target != "" {
			target = ", target: " + target
		}
		line("    {source: %s, mode: %s%s},", pick(t, somePaths, "source"), pick(t, accessWords(), "mode"), target)
	}
	line("  ]\nenv:\n  any: %v\n  pass: [%s]", coin(t, "any"), quoted(some(t, someNames, "pass")))
	if coin(t, "set") {
		line("  set: {%s: %q}", pick(t, someNames, "name"), pick(t, someWords, "value"))
	}
	f, err := Parse(name, []byte(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return f
}

func quoted(s []string) string {
	var out []string
	for _, x := range s {
		out = append(out, fmt.Sprintf("%q", x))
	}
	return strings.Join(out, ", ")
}

func drawCall(t *rapid.T) *Call {
	c := command(func(c *Call) {
		c.Override, c.Operator = coin(t, "override"), rapid.IntRange(0, 3).Draw(t, "stranger") > 0
		c.Lookup = func(string) (string, bool) { return "host", true }
		c.Limits.Explicit = map[sandbox.LimitName]bool{}
	})
	// Most calls ask for one thing, or all would be denied for some other.
	for range rapid.IntRange(0, 2).Draw(t, "wishes") {
		switch rapid.IntRange(0, 13).Draw(t, "wish") {
		case 13:
			c.Image = pick(t, someImages, "image")
		case 0:
			c.Isolation = pick(t, Isolations(), "isolation")
		case 1:
			c.Limits.Memory, c.Limits.Explicit["memory"] = int64(rapid.IntRange(1, 512).Draw(t, "memory"))<<20, true
		case 2:
			c.Limits.CPUTime, c.Limits.Explicit["cpu_time"] = 5e9, true
		case 3:
			c.Limits.OutputKill, c.Limits.Explicit["on_output"] = coin(t, "kill"), true
		case 4:
			c.Workspace = &MountWish{pick(t, somePaths, "source"), "", sandbox.Access(rapid.IntRange(0, 2).Draw(t, "access")), false}
		case 5, 6:
			c.Mounts = append(c.Mounts, MountWish{
				pick(t, somePaths, "source"), pick(t, someTargets, "target"), sandbox.Access(rapid.IntRange(0, 2).Draw(t, "access")), false,
			})
		case 7:
			c.Toolchains = some(t, somePaths, "toolchains")
		case 8:
			c.Rootfs = pick(t, somePaths, "rootfs")
		case 9:
			c.Writable = some(t, someInside, "writable")
		case 10:
			c.Collect = []CollectWish{{Pattern: pick(t, someGlobs, "collect")}}
		case 11:
			c.Env = map[string]string{pick(t, someNames, "name"): pick(t, someWords, "value")}
		case 12:
			c.Root, c.BestEffort = coin(t, "root"), coin(t, "best effort")
		}
	}
	return c
}

// below is the oracle for "same or below", on components and not on text.
func below(dir, p string) bool {
	d, q := strings.Split(strings.Trim(dir, "/"), "/"), strings.Split(strings.Trim(p, "/"), "/")
	return len(d) <= len(q) && slices.Equal(d, q[:len(d)])
}

// beyond says what of plan goes beyond f, written without the code under test
// where that can be. System says that f bounds file and flags alike; isolation
// is what the system's file prescribes, which stands in for the default.
func beyond(plan Plan, f *File, system bool, isolation string) string {
	defaults := sandbox.DefaultLimits()
	for _, l := range limits() {
		maximum := l.get(&defaults)
		if f.Limits.Explicit[l.name] {
			maximum = l.get(&f.Limits)
		}
		got := l.get(&plan.Limits)
		more := maximum != 0 && (got == 0 || got > maximum)
		recorded := slices.ContainsFunc(plan.Overridden, func(s string) bool { return strings.HasPrefix(s, "limits."+string(l.name)+":") })
		if more && (system || !recorded) {
			return fmt.Sprintf("%s %v of %v", l.name, got, maximum)
		}
		if recorded && !more && !system {
			return fmt.Sprintf("%s is recorded as overridden and is not", l.name)
		}
	}
	if f.Limits.OutputKill && !plan.Limits.OutputKill && (system || len(plan.Overridden) == 0) {
		return "on_output"
	}
	if f.Isolation.Said() && plan.Isolation != f.Isolation.V {
		return "isolation " + plan.Isolation
	}
	if !f.Isolation.Said() && plan.Isolation != isolation && !slices.Contains([]string{"gvisor", "microvm", "microvm:qemu", "microvm:firecracker", "vm"}, plan.Isolation) {
		return "isolation " + plan.Isolation + ", weaker than the default"
	}
	covered := func(m PlanMount) bool {
		for _, s := range f.named() {
			if below(s.Source, m.Source) && m.Access <= s.Access {
				return true
			}
		}
		return false
	}
	for _, m := range plan.Mounts {
		if !covered(m) {
			return "mount " + m.Source
		}
		if m.From == "flag" && strings.HasSuffix(m.Source, "/.env") && slices.Contains(texts(f.Files.Deny), "**/.env") &&
			!slices.ContainsFunc(f.named(), func(s source) bool { return s.Source == m.Source }) {
			return "denied " + m.Source
		}
	}
	if plan.Workspace != nil && !covered(*plan.Workspace) {
		return "workspace " + plan.Workspace.Source
	}
	for _, p := range plan.Toolchains {
		if !slices.ContainsFunc(f.Files.Toolchains, func(v Value[string]) bool { return below(v.V, p.Source) }) {
			return "toolchain " + p.Source
		}
	}
	if plan.Rootfs != nil && (!f.Files.Rootfs.Said() || !below(f.Files.Rootfs.V, plan.Rootfs.Source)) {
		return "rootfs " + plan.Rootfs.Source
	}
	if plan.Image != nil {
		r, err := reference.Parse(plan.Image.Ref)
		named := f.Image.Said() && f.image() == r
		if err != nil || !named && !slices.ContainsFunc(f.Images, func(v Value[string]) bool { return reference.Match(v.V, r) }) {
			return "image " + plan.Image.Ref
		}
	}
	for _, w := range plan.Writable {
		list := []string{"/home/user", "/tmp", "/dev/shm"}
		if f.Files.Writable.Said() {
			list = texts(f.Files.Writable.V)
		}
		if !slices.ContainsFunc(list, func(dir string) bool { return below(dir, w) }) {
			return "writable " + w
		}
	}
	for _, d := range texts(f.Files.Deny) {
		if !slices.Contains(plan.Deny, d) {
			return "no longer denied: " + d
		}
	}
	for _, c := range plan.Collect {
		if out := letsOut(c.Pattern, texts(f.Files.Collect)); out != "" {
			return "collects " + out
		}
	}
	for name, value := range plan.Env {
		v, ok := f.Env.Set[name]
		free := f.Env.Any.V && !ok && value != "host"
		if !free && !slices.Contains(texts(f.Env.Pass), name) && (!ok || v.V != value) {
			return "env " + name
		}
	}
	if plan.Root && f.User.V != "root" && (f.User.V != "sudoer" || plan.From["user"] != "flag") {
		return "root"
	}
	if plan.BestEffort && !f.BestEffort.V {
		return "best effort"
	}
	return ""
}

// letsOut finds a path that pattern matches and none of allowed does.
func letsOut(pattern string, allowed []string) string {
	match := func(g, p string) bool { glob, err := ParseGlob(g); return err == nil && glob.Match("/w", p) }
	for _, p := range []string{"/.env", "/d/.env", "/d/a/b", "/d/a/c", "/x", "/x/y", "/w/out", "/w/out/a", "/w/out/a/b", "/w/a", "/w/ab", "/w/a/b", "/q/a/b"} {
		if match(pattern, p) && !slices.ContainsFunc(allowed, func(g string) bool { return match(g, p) }) {
			return p
		}
	}
	return ""
}

// TestNothingWidens: whatever the files say and the call asks for, an allowed
// plan is within each file; only Override, by the operator, goes beyond the
// file, only in limits, and never beyond the system's file.
func TestNothingWidens(t *testing.T) {
	allowed, denied := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var system *File
		if coin(t, "system") {
			system = drawFile(t, "/etc/caisson/policy.yaml")
		}
		file, call := drawFile(t, "/w/p.yaml"), drawCall(t)
		p, err := New(Options{System: system, File: file})
		if err != nil {
			t.Fatal(err)
		}
		v := p.Decide(call)
		if v.Decision != Allow {
			denied++
			if v.Rule == "" || v.Reason == "" || strings.HasPrefix(v.Rule, "built-in: internal") {
				t.Fatalf("denied by %q: %q", v.Rule, v.Reason)
			}
			return
		}
		allowed++
		if what := ""; system != nil {
			if what = beyond(v.Plan, system, true, ""); what != "" {
				t.Fatalf("beyond the system's file: %s\nplan %+v", what, v.Plan)
			}
		}
		if file != nil {
			prescribed := ""
			if system != nil {
				prescribed = system.Isolation.V
			}
			if what := beyond(v.Plan, file, false, prescribed); what != "" {
				t.Fatalf("beyond the file: %s\nplan %+v", what, v.Plan)
			}
		}
		if !call.Operator && (len(v.Plan.Overridden) > 0 || file == nil && (v.Plan.Root || len(v.Plan.Mounts) > 0)) {
			t.Fatalf("a stranger got %+v", v.Plan)
		}
		if len(v.Plan.Overridden) > 0 && !call.Override {
			t.Fatalf("overridden without being asked to: %v", v.Plan.Overridden)
		}
	})
	if allowed == 0 || denied == 0 {
		t.Errorf("%d allowed, %d denied: nothing was tested", allowed, denied)
	}
	t.Logf("%d allowed, %d denied", allowed, denied)
}

var someImages = []string{"python", "python:3", "python:3.14", "node", "ghcr.io/acme/x:1", "/srv/x.tar"}
