// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// checkAbsolute refuses host paths that a frontend left relative: what they start
// from is not known here.
func checkAbsolute(p string) *refusal {
	if err := checkHostPath(p); err != nil {
		return refuseInvalid("host path", err)
	}
	if !filepath.IsAbs(p) {
		return cannotMean("give its absolute path", "host path %s is relative", quote(p))
	}
	return nil
}

// wish makes a mount of the plan out of what a call asks for, if every layer
// covers it.
func (d *decision) wish(w MountWish, workspace bool) (PlanMount, *refusal) {
	m := PlanMount{PlanPath: PlanPath{Source: filepath.Clean(w.Source)}, Target: w.Target, Access: w.Access, Shared: w.Shared, From: "flag"}
	m.GitWrite = w.Access == sandbox.ReadWrite && d.call.Git == GitWrite
	for _, f := range d.layers {
		by, r := f.boundMount(m, workspace)
		if r != nil {
			return PlanMount{}, r
		}
		m.Beneath = append(m.Beneath, by)
	}
	return m, nil
}

// own makes a mount of the plan out of what the file names.
func (d *decision) own(s source) (PlanMount, *refusal) {
	m := PlanMount{
		PlanPath: PlanPath{Source: s.Source}, Target: s.Target, Access: s.Access, From: d.file.rule(s.At),
		GitWrite: s.GitWrite && d.call.Git != GitReadOnly, Shared: s.Shared,
	}
	if d.call.Git == GitWrite && s.Access == sandbox.ReadWrite && !s.GitWrite {
		return PlanMount{}, refuse(m.From, "add git: rw to the entry", "repositories in %s are read-only (git: ro)", s.Source)
	}
	if d.system != nil {
		by, r := d.system.boundMount(m, s.workspace)
		if r != nil {
			return PlanMount{}, r
		}
		m.Beneath = append(m.Beneath, by)
	}
	return m, nil
}

func (d *decision) workspace() *refusal {
	var m PlanMount
	var r *refusal
	switch {
	case d.call.Workspace != nil:
		m, r = d.wish(*d.call.Workspace, true)
		m.Target = ""
	case d.file != nil && d.file.Files.Workspace != nil:
		all := d.file.named() // the workspace is its last
		m, r = d.own(all[len(all)-1])
	default:
		return nil
	}
	if r == nil {
		d.plan.Workspace, d.plan.From["files.workspace"] = &m, m.From
	}
	return r
}

// mounts are the file's, then the call's. A mount of the call may narrow one
// of the file's (same source, same target), but never take its place.
func (d *decision) mounts() *refusal {
	if d.file != nil {
		for _, s := range d.file.named() {
			if s.workspace {
				continue
			}
			m, r := d.own(s)
			if r != nil {
				return r
			}
			d.plan.Mounts = append(d.plan.Mounts, m)
		}
	}
	for _, w := range d.call.Mounts {
		m, r := d.wish(w, false)
		if r == nil {
			r = d.place(m)
		}
		if r != nil {
			return r
		}
	}
	return d.gitWrite()
}

// gitWrite refuses a --git rw that would open nothing.
func (d *decision) gitWrite() *refusal {
	all := d.plan.Mounts
	if d.plan.Workspace != nil {
		all = append(slices.Clone(all), *d.plan.Workspace)
	}
	if d.call.Git == GitWrite && !slices.ContainsFunc(all, func(m PlanMount) bool { return m.GitWrite }) {
		return cannotMean("leave it out, or mount a directory rw: --workspace DIR:rw", "--git rw: there is no read-write mount")
	}
	return nil
}

// place adds m to the plan's mounts.
func (d *decision) place(m PlanMount) *refusal {
	for i, other := range d.plan.Mounts {
		ours, theirs := d.landing(m), d.landing(other)
		switch {
		case ours == theirs && m.Source == other.Source && m.Access <= other.Access && (other.GitWrite || !m.GitWrite) && other.From != "flag":
			d.plan.Mounts[i] = m
			return nil
		case ours == theirs:
			return refuse(mountRule(other), "give it another target", "%s and %s would both be at %s", m.Source, other.Source, ours)
		case sandbox.Within(theirs, ours) && other.From != "flag":
			return refuse(mountRule(other), "give it another target", "%s at %s would hide the policy's mount at %s", m.Source, ours, theirs)
		}
	}
	d.plan.Mounts = append(d.plan.Mounts, m)
	return nil
}

// landing is a mount's target; without one it is the base name in the working
// directory. Where the session chooses that, it stays relative here, and the
// session finds out whether two mounts meet.
func (d *decision) landing(m PlanMount) string {
	if m.Target == "" {
		return path.Join(d.call.Cwd, filepath.Base(m.Source))
	}
	return m.Target
}

func mountRule(m PlanMount) string {
	if m.From == "flag" {
		return "built-in: one mount for each target"
	}
	return m.From
}

// trees are the toolchains and the root filesystem.
func (d *decision) trees() *refusal {
	if f := d.file; f != nil {
		if r := d.pathTools(f); r != nil {
			return r
		}
		for _, v := range f.dirs() {
			if r := d.toolchain(f.hostPath(v.V), d.above(f), f.rule(v.At)); r != nil {
				return r
			}
		}
		if v := f.Files.Rootfs; v.Said() {
			if r := d.rootfs(f.hostPath(v.V), d.above(f), f.rule(v.At)); r != nil {
				return r
			}
		}
	}
	for _, p := range d.call.Toolchains {
		if r := d.toolchain(filepath.Clean(p), d.layers, "flag"); r != nil {
			return r
		}
	}
	if p := d.call.Rootfs; p != "" {
		return d.rootfs(filepath.Clean(p), d.layers, "flag")
	}
	return nil
}

// above are the layers that bound what f itself says.
func (d *decision) above(f *File) []*File {
	if f == d.file && d.system != nil {
		return []*File{d.system}
	}
	return nil
}

func (d *decision) toolchain(dir string, layers []*File, from string) *refusal {
	p := PlanPath{Source: dir}
	for _, f := range layers {
		by, r := f.boundToolchain(dir)
		if r != nil {
			return r
		}
		p.Beneath = append(p.Beneath, by)
	}
	for _, have := range d.plan.Toolchains {
		if have.Source == dir {
			return nil
		}
	}
	d.plan.Toolchains = append(d.plan.Toolchains, p)
	d.plan.From["files.toolchains."+dir] = from
	return nil
}

func (d *decision) rootfs(dir string, layers []*File, from string) *refusal {
	p := &PlanPath{Source: dir}
	for _, f := range layers {
		by, r := f.boundRootfs(dir)
		if r != nil {
			return r
		}
		p.Beneath = append(p.Beneath, by)
	}
	d.plan.Rootfs, d.plan.From["files.rootfs"] = p, from
	return nil
}

// writable are the file's paths or the defaults, and what the call adds within
// every layer's bounds. Defaults give way to a layer that does not have them.
func (d *decision) writable() *refusal {
	paths, from := DefaultWritable(), "default"
	if d.file != nil && d.file.Files.Writable.Said() {
		paths, from = texts(d.file.Files.Writable.V), d.file.rule(d.file.Files.Writable.At)
	}
	for _, p := range paths {
		if d.plan.inVolume(p) {
			continue // it can be written there
		}
		if d.system == nil || d.system.boundWritable(p) == nil {
			d.plan.Writable = append(d.plan.Writable, p)
			d.plan.From["files.writable."+p] = from
		}
	}
	for _, p := range d.call.Writable {
		if err := checkTarget(p); err != nil {
			return refuseInvalid("writable", err)
		}
		if r := d.each(func(f *File) *refusal { return f.boundWritable(p) }); r != nil {
			return r
		}
		if !d.plan.inVolume(p) && !slices.ContainsFunc(d.plan.Writable, func(have string) bool { return sandbox.Within(p, have) }) {
			d.plan.Writable = append(d.plan.Writable, p)
			d.plan.From["files.writable."+p] = "flag"
		}
	}
	return nil
}

// patterns adds up what is denied, and takes what the call collects.
func (d *decision) patterns() *refusal {
	for _, f := range d.layers {
		for _, v := range f.Files.Deny {
			d.deny(v.V, f.rule(v.At))
		}
	}
	for _, s := range d.call.Deny {
		if _, err := ParseGlob(s); err != nil {
			return refuseInvalid("deny", err)
		}
		d.deny(s, "flag")
	}
	if len(d.call.Deny) > 0 && len(d.plan.Mounts) == 0 && d.plan.Workspace == nil {
		return cannotMean("leave it out, or show something with --mount or --workspace", "--deny: there is no mount whose files it would hide")
	}
	if f := d.file; f != nil {
		for _, v := range f.Files.Collect {
			d.plan.MayCollect = append(d.plan.MayCollect, v.V)
			d.plan.From["files.collect."+v.V] = f.rule(v.At)
		}
	}
	for _, c := range d.call.Collect {
		if _, err := ParseGlob(c.Pattern); err != nil {
			return refuseInvalid("collect", err)
		}
		if r := d.each(func(f *File) *refusal { return f.boundCollect(c.Pattern) }); r != nil {
			return r
		}
		d.plan.Collect = append(d.plan.Collect, c)
	}
	d.plan.CollectOverwrite = d.call.CollectOverwrite && len(d.call.Collect) > 0
	d.plan.CollectLimits = d.call.CollectLimits
	return d.call.CollectLimits.check()
}

func (d *decision) deny(pattern, from string) {
	if !slices.Contains(d.plan.Deny, pattern) {
		d.plan.Deny = append(d.plan.Deny, pattern)
		d.plan.From["files.deny."+pattern] = from
	}
}
