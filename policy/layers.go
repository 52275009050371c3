// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// fileWithinSystem refuses a policy file that asks for more than the system
// file allows. The refusal names both lines.
func (p *Policy) fileWithinSystem() *refusal {
	for _, check := range []func(sys, f *File) *refusal{
		p.switchesWithin, p.limitsWithin, filesWithin, volumesWithin, pathsWithin, envWithin, networkWithin,
	} {
		if r := check(p.system, p.file); r != nil {
			return r
		}
	}
	return nil
}

// by says in r which line of f wanted it; nil stays nil.
func (r *refusal) by(f *File, at Pos) *refusal {
	if r != nil {
		r.reason = f.rule(at) + " goes beyond the system's policy: " + r.reason
		r.hint = "change " + f.rule(at) + ", or " + r.hint
	}
	return r
}

func (p *Policy) switchesWithin(sys, f *File) *refusal {
	if f.Isolation.Said() {
		if r := sys.boundIsolation(f.Isolation.V); r != nil {
			return r.by(f, f.Isolation.At)
		}
	}
	if f.Image.Said() {
		if _, r := sys.boundImage(f.image()); r != nil {
			return r.by(f, f.Image.At)
		}
	}
	if r := sys.boundUser(f.User.V); r != nil {
		return r.by(f, f.User.At)
	}
	if f.BestEffort.V {
		return sys.boundBestEffort().by(f, f.BestEffort.At)
	}
	return nil
}

func (p *Policy) limitsWithin(sys, f *File) *refusal {
	for _, l := range limits() {
		if l.name == sandbox.LimitWall && sys.NoWall.Said() {
			continue
		}
		if l.name == sandbox.LimitWall && f.NoWall.Said() {
			if r := sys.boundLimit(l, 0, &p.defaults); r != nil {
				return r.by(f, f.NoWall)
			}
		}
		if f.Limits.Explicit[l.name] {
			if r := sys.boundLimit(l, l.get(&f.Limits), &p.defaults); r != nil {
				return r.by(f, f.limitsAt[l.name])
			}
		}
	}
	if f.Limits.Explicit[limitOnOutput] {
		return sys.boundOnOutput(f.Limits.OutputKill, &p.defaults).by(f, f.limitsAt[limitOnOutput])
	}
	return nil
}

func filesWithin(sys, f *File) *refusal {
	for _, s := range f.named() {
		m := PlanMount{PlanPath: PlanPath{Source: s.Source}, Target: s.Target, Access: s.Access, GitWrite: s.GitWrite}
		if _, r := sys.boundMount(m, s.workspace); r != nil {
			return r.by(f, s.At)
		}
	}
	if at := f.pathTools(); at.Said() {
		if r := sys.boundPathTools(); r != nil {
			return r.by(f, at)
		}
	}
	for _, t := range f.dirs() {
		if _, r := sys.boundToolchain(f.hostPath(t.V)); r != nil {
			return r.by(f, t.At)
		}
	}
	if f.Files.Rootfs.Said() {
		if _, r := sys.boundRootfs(f.hostPath(f.Files.Rootfs.V)); r != nil {
			return r.by(f, f.Files.Rootfs.At)
		}
	}
	return nil
}

func pathsWithin(sys, f *File) *refusal {
	for _, w := range f.Files.Writable.V {
		if r := sys.boundWritable(w.V); r != nil {
			return r.by(f, w.At)
		}
	}
	for _, c := range f.Files.Collect {
		if r := sys.boundCollect(c.V); r != nil {
			return r.by(f, c.At)
		}
	}
	return nil
}

func envWithin(sys, f *File) *refusal {
	if f.Env.Any.V {
		if r := sys.boundAnyEnv(); r != nil {
			return r.by(f, f.Env.Any.At)
		}
	}
	for _, v := range f.Env.Pass {
		if r := sys.boundPass(v.V); r != nil {
			return r.by(f, v.At)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Env.Set)) {
		v := f.Env.Set[name]
		if r := sys.boundEnv(name, v.V); r != nil {
			return r.by(f, v.At)
		}
	}
	return nil
}

// layers are the files that bound a call, the system's first. A caller that is
// not the operator is never without a file: what the system would let the
// operator ask for is not the caller's.
func (p *Policy) layers(operator bool) []*File {
	var out []*File
	if p.system != nil {
		out = append(out, p.system)
	}
	if p.file != nil {
		out = append(out, p.file)
	}
	if p.file == nil && !operator {
		out = append(out, builtin())
	}
	return out
}

const builtinName = "built-in: defaults"

// builtin is the policy of a caller who is not the operator where there is no
// file: the defaults, and nothing more.
func builtin() *File {
	return &File{Name: builtinName, Dir: "/"}
}
