// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// The methods of this file say whether a layer allows what a layer or a call
// below it wants. Each refusal names the line that decides, or the file when
// it is silent, and the YAML that would allow it.

// boundIsolation: the same level, or where the file names none, one at least
// as strong as the default.
func (f *File) boundIsolation(level string) *refusal {
	if f.Isolation.Said() {
		if level != f.Isolation.V {
			return refuse(f.rule(f.Isolation.At), "change the line to isolation: "+level,
				"isolation is %s, not %s", f.Isolation.V, level)
		}
		return nil
	}
	if !atLeast(level, DefaultIsolation) {
		return refuse(f.Name, f.add("isolation: "+level),
			"%s is not known to be at least as strong as %s, and the policy names no isolation", level, DefaultIsolation)
	}
	return nil
}

// add is the hint to add a line of YAML to f.
func (f *File) add(line string) string { return Add(f.Name, line) }

// Add is the hint that adds a line to the policy of a name: a file's, or a preset's.
func Add(name, line string) string {
	if name == builtinName {
		return "ask the operator for a policy that has " + line
	}
	if preset, ok := strings.CutPrefix(name, PresetPrefix); ok {
		return "write it down with caisson policy init --preset " + preset + " -o FILE, and add to FILE: " + line
	}
	return "add to " + name + ": " + line
}

// limitBound is the most that f allows of l and the line that says so.
func (f *File) limitBound(l limit, defaults *sandbox.Limits) (maximum float64, at Pos) {
	if f.Limits.Explicit[l.name] {
		return l.get(&f.Limits), f.limitsAt[l.name]
	}
	return l.get(defaults), Pos{}
}

// boundLimit: no more than the file says, or than the default where it is
// silent.
func (f *File) boundLimit(l limit, want float64, defaults *sandbox.Limits) *refusal {
	maximum, at := f.limitBound(l, defaults)
	if bound(want) <= bound(maximum) {
		return nil
	}
	if !at.Said() {
		return refuse(f.Name, f.add(fmt.Sprintf("limits: {%s: %s}", l.name, l.show(want))),
			"%s %s is more than the default %s, and the policy says nothing about it", l.name, l.show(want), l.show(maximum))
	}
	return refuse(f.rule(at), fmt.Sprintf("change the line to %s: %s", l.name, l.show(want)),
		"%s %s is more than the %s of the policy", l.name, l.show(want), l.show(maximum))
}

// boundOnOutput: killing is the tighter choice.
func (f *File) boundOnOutput(kill bool, defaults *sandbox.Limits) *refusal {
	if kill {
		return nil
	}
	if !f.Limits.Explicit[limitOnOutput] {
		if defaults.OutputKill {
			return refuse(f.Name, f.add("limits: {on_output: truncate}"), "on_output is kill by default, and the policy says nothing about it")
		}
		return nil
	}
	if f.Limits.OutputKill {
		return refuse(f.rule(f.limitsAt[limitOnOutput]), "change the line to on_output: truncate",
			"on_output is kill, not truncate")
	}
	return nil
}

// source is a host path that a file names in mounts or workspace.
type source struct {
	Mount
	written   string
	workspace bool
}

// named lists the mounts and the workspace of f, sources absolute.
func (f *File) named() []source {
	var out []source
	for _, m := range f.Files.Mounts {
		out = append(out, source{Mount: m, written: m.Source})
	}
	if w := f.Files.Workspace; w != nil {
		out = append(out, source{Mount: *w, written: w.Source, workspace: true})
	}
	for i := range out {
		out[i].Source = f.hostPath(out[i].Source)
	}
	return out
}

// covering finds the most specific source of f that p is beneath; of several
// entries for the same one, that with the widest access.
func (f *File) covering(p string) (best source, ok bool) {
	for _, s := range f.named() {
		if !hostBeneath(s.Source, p) {
			continue
		}
		if !ok || len(s.Source) > len(best.Source) || s.Source == best.Source && wider(s, best) {
			best, ok = s, true
		}
	}
	return best, ok
}

// wider says whether a allows more than b.
func wider(a, b source) bool {
	return a.Access > b.Access || a.Access == b.Access && a.GitWrite && !b.GitWrite
}

// boundMount: beneath a named source, with no wider access, and with nothing
// brought into view that files.deny hides. It returns the source that covers m.
func (f *File) boundMount(m PlanMount, workspace bool) (string, *refusal) {
	s, ok := f.covering(m.Source)
	if !ok {
		return "", refuse(f.rule(f.Files.At), f.add(mountLine(m, workspace)), "the policy names no source that holds %s", m.Source)
	}
	if m.Access > s.Access {
		return "", refuse(f.rule(s.At), "change the entry to mode: "+m.Access.String(),
			"%s may be had as %s, not %s", s.Source, s.Access, m.Access)
	}
	if m.GitWrite && !s.GitWrite {
		return "", refuse(f.rule(s.At), "add git: rw to the entry", "repositories in %s are read-only (git: ro)", s.Source)
	}
	rel, err := filepath.Rel(s.Source, m.Source)
	if err != nil {
		return "", refuse(f.rule(s.At), "", "%s cannot be placed below %s", m.Source, s.Source)
	}
	return s.Source, f.boundDenied(s, m, filepath.ToSlash(rel), workspace)
}

// mountLine is the YAML that would allow m.
func mountLine(m PlanMount, workspace bool) string {
	mode := m.Access.String()
	if m.GitWrite {
		mode += ", git: rw"
	}
	if workspace {
		return fmt.Sprintf("files: {workspace: {source: %s, mode: %s}}", m.Source, mode)
	}
	if m.Target == "" {
		return fmt.Sprintf("files: {mounts: [{source: %s, mode: %s}]}", m.Source, mode)
	}
	return fmt.Sprintf("files: {mounts: [{source: %s, target: %s, mode: %s}]}", m.Source, m.Target, mode)
}

// boundDenied keeps a mount from slipping out from under files.deny. Patterns
// are on paths inside, so a mount of the same files at another place could
// show what they hide. **/NAME holds at any place and is looked for in the
// part of the path below s; any other pattern that may touch s allows m only
// where s shows it.
func (f *File) boundDenied(s source, m PlanMount, rel string, workspace bool) *refusal {
	moved := workspace != s.workspace || rel != "." && s.Target == "" || !workspace && m.Target != s.shows(rel)
	for _, v := range f.Files.Deny {
		g, err := ParseGlob(v.V)
		if err != nil {
			return refuseInvalid("files.deny", err)
		}
		if name, ok := g.floating(); ok {
			for _, part := range strings.Split(rel, "/") {
				if rel != "." && coverPart(tokens(name), tokens(escape(part))) {
					return refuse(f.rule(v.At), "drop the mount or the pattern", "%s is denied by %s", m.Source, v.V)
				}
			}
			continue
		}
		if moved && g.touches(s.Target) {
			hint := "drop it, or name it in " + f.Name
			if place := s.shows(rel); place != "" && !workspace {
				hint = "give it the target " + place
			}
			return refuse(f.rule(v.At), hint, "%s at another place could show what %s denies", m.Source, v.V)
		}
	}
	return nil
}

// shows is where inside s shows its part rel; empty when the session chooses.
func (s source) shows(rel string) string {
	if s.Target == "" || rel == "." {
		return s.Target
	}
	return path.Join(s.Target, rel)
}

// touches says whether g may match something beneath the path target; an empty
// one may be anywhere.
func (g Glob) touches(target string) bool {
	if target == "" || !g.absolute {
		return true
	}
	fixed := "/"
	for _, p := range g.parts {
		if strings.ContainsAny(p, `*?\`) {
			break
		}
		fixed = path.Join(fixed, p)
	}
	return sandbox.Within(target, fixed) || sandbox.Within(fixed, target)
}

// boundPath: p is one of list, host directories of f, or beneath one.
func (f *File) boundPath(key, p string, list []Value[string]) (string, *refusal) {
	for _, v := range list {
		if dir := f.hostPath(v.V); hostBeneath(dir, p) {
			return dir, nil
		}
	}
	line := fmt.Sprintf("files: {%s: [%s]}", key, p)
	if key == "rootfs" {
		line = fmt.Sprintf("files: {rootfs: %s}", p)
		if f.Files.Rootfs.Said() {
			return "", refuse(f.rule(f.Files.Rootfs.At), "change the line to rootfs: "+p, "rootfs is %s, not %s", f.hostPath(f.Files.Rootfs.V), p)
		}
	}
	return "", refuse(f.rule(f.Files.At), f.add(line), "the policy names no %s that holds %s", strings.TrimSuffix(key, "s"), p)
}

func (f *File) boundToolchain(p string) (string, *refusal) {
	return f.boundPath("toolchains", p, f.dirs())
}

func (f *File) boundRootfs(p string) (string, *refusal) {
	var list []Value[string]
	if f.Files.Rootfs.Said() {
		list = append(list, f.Files.Rootfs)
	}
	return f.boundPath("rootfs", p, list)
}

// DefaultWritable lists the writable paths of a sandbox when no policy file
// says any.
func DefaultWritable() []string { return []string{"/home/user", "/tmp", "/dev/shm"} }

// DataDir is a directory that a call may have besides DefaultWritable where no
// policy file says any, as private as they are: where models look for their files.
const DataDir = "/mnt/data"

// writable are the paths that f allows to be written.
func (f *File) writable() []string {
	if f.Files.Writable.Said() {
		return texts(f.Files.Writable.V)
	}
	return DefaultWritable()
}

func (f *File) boundWritable(p string) *refusal {
	for _, w := range f.writable() {
		if sandbox.Within(p, w) {
			return nil
		}
	}
	if p == DataDir && !f.Files.Writable.Said() {
		return nil
	}
	at := f.Files.Writable.At
	if !at.Said() {
		at = f.Files.At
	}
	return refuse(f.rule(at), f.add("files: {writable: ["+strings.Join(append(f.writable(), p), ", ")+"]}"), "%s is not writable", p)
}

func (f *File) boundCollect(pattern string) *refusal {
	want, err := ParseGlob(pattern)
	if err != nil {
		return refuseInvalid("collect", err)
	}
	for _, v := range f.Files.Collect {
		if g, err := ParseGlob(v.V); err == nil && g.Covers(want) {
			return nil
		}
	}
	return refuse(f.rule(f.Files.At), f.add("files: {collect: ["+quote(pattern)+"]}"), "the policy lets no files out that match %s", quote(pattern))
}

// boundEnv: in env.set with the same value, or its name in env.pass, or, where the
// file does not set it, any. Values are no part of messages: they may be secrets.
// Where there is no policy file a caller sets what its own programs see: nothing of
// the host is in it.
func (f *File) boundEnv(name, value string) *refusal {
	if _, set := f.Env.Set[name]; f.Name == builtinName || f.Env.Any.V && !set {
		return nil
	}
	for _, v := range f.Env.Pass {
		if v.V == name {
			return nil
		}
	}
	if v, ok := f.Env.Set[name]; ok {
		if v.V == value {
			return nil
		}
		return refuse(f.rule(v.At), f.add("env: {pass: ["+name+"]}"), "variable %s has another value in the policy", name)
	}
	if slices.Contains(plain[name], value) {
		return nil
	}
	return refuse(f.rule(f.Env.At), f.add("env: {pass: ["+name+"]}"), "the policy does not pass variable %s", name)
}

// plain are values of variables that no file needs to pass: they say what the
// caller's terminal shows, or that there is none. Clients send them of their own
// accord with every terminal, and with git.
var plain = map[string][]string{
	"TERM":                {"dumb", "linux", "screen", "screen-256color", "tmux-256color", "vt100", "xterm", "xterm-256color"},
	"COLORTERM":           {"truecolor"},
	"LANG":                {"C", "C.UTF-8", "en_US.UTF-8"},
	"LC_ALL":              {"C", "C.UTF-8", "en_US.UTF-8"},
	"GIT_TERMINAL_PROMPT": {"0"},
}

func (f *File) boundAnyEnv() *refusal {
	if f.Env.Any.V {
		return nil
	}
	return refuse(f.rule(f.Env.At), f.add("env: {any: true}"), "the policy does not let calls set any variable")
}

func (f *File) boundPass(name string) *refusal {
	for _, v := range f.Env.Pass {
		if v.V == name {
			return nil
		}
	}
	return refuse(f.rule(f.Env.At), f.add("env: {pass: ["+name+"]}"), "the policy does not pass variable %s", name)
}

func (f *File) boundBestEffort() *refusal {
	if f.BestEffort.V {
		return nil
	}
	return refuse(f.rule(f.BestEffort.At), f.add("best_effort: true"), "the policy does not allow best effort")
}
