// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// maxWishes bounds the entries of a call's lists together, and with them the
// time a decision takes.
const maxWishes = 1024

// decision is one call on its way to a verdict.
type decision struct {
	*Policy
	call   *Call
	layers []*File
	plan   Plan

	askings []Asking // rules that ask
}

// Decide gives the verdict on call. It changes nothing, and a fault in it is a
// Deny: no input makes it panic or allow by accident.
func (p *Policy) Decide(call *Call) Verdict { return p.decide(call, false) }

// DecideTool judges the tool of a call alone, for who has to know that its arguments
// fit before it is known what the call would do. What that is has to be decided then.
func (p *Policy) DecideTool(call *Call) Verdict { return p.decide(call, true) }

func (p *Policy) decide(call *Call, toolAlone bool) (v Verdict) {
	defer func() {
		if r := recover(); r != nil {
			v = refuse("built-in: internal fault", "report this", "the decision failed: %v", r).verdict()
		}
	}()
	if p == nil || p.digest == "" || call == nil {
		return refuse("built-in: internal fault", "report this", "there is no policy or no call").verdict()
	}
	d := &decision{Policy: p, call: call, layers: p.layers(call.Operator)}
	d.plan = Plan{Env: map[string]string{}, From: map[string]string{}}
	steps := []func() *refusal{
		d.request, d.hostPaths, func() *refusal { return p.conflict }, d.tool, d.untooled,
		d.isolation, d.image, d.limits, d.switches, d.workspace, d.changes, d.mounts, d.volumes, d.trees, d.writable, d.patterns, d.env, d.network, d.secrets, d.headers, d.ended, d.commands, d.code,
	}
	if toolAlone || call.Kind == CallTool { // it has no sandbox
		steps = steps[:4]
	}
	if call.Kind == CallHTTP && !toolAlone {
		steps = []func() *refusal{d.request, d.checkHTTP, steps[2], d.tool, d.isolation, d.limits, d.switches, d.network, d.secrets, d.sayHTTP, d.ended}
	}
	if call.Kind.touchesFile() {
		steps = []func() *refusal{d.request, d.checkPath, steps[2], d.path}
	}
	if !toolAlone {
		steps = append(steps, d.applied, d.risk)
	}
	for _, step := range steps {
		if r := step(); r != nil {
			return r.verdict()
		}
	}
	d.planApprovals()
	q, r := d.question()
	switch {
	case r != nil:
		return r.verdict()
	case q != nil:
		return q.verdict(d.plan)
	}
	return Verdict{Decision: Allow, Reason: d.reason(), Plan: d.plan}
}

func (d *decision) reason() string {
	switch {
	case d.file != nil:
		return "within " + d.file.Name
	case d.system != nil:
		return "within " + d.system.Name
	}
	return "no policy file; built-in defaults and flags"
}

// each asks every layer; the first refusal counts.
func (d *decision) each(ask func(f *File) *refusal) *refusal {
	for _, f := range d.layers {
		if r := ask(f); r != nil {
			return r
		}
	}
	return nil
}

// request refuses calls that say nothing that can run.
func (d *decision) request() *refusal {
	c := d.call
	switch {
	case c.Kind != RunCommand && c.Kind != RunCode && c.Kind != StartSandbox && c.Kind != CallTool && c.Kind != CallHTTP && !c.Kind.touchesFile():
		return cannotMean("known are run_command, run_code, start_sandbox, call_tool, call_http, and read_file, write_file, remove_file, move_file and make_directory", "kind %s is not known", quote(string(c.Kind)))
	case c.Kind == RunCommand && len(c.Argv) == 0 && c.Image == "": // an image says itself what it runs
		return cannotMean("name a program", "there is no command")
	case c.Kind == RunCode && c.Language == "":
		return cannotMean("name the language of the code", "the code has no language")
	case (c.Kind == CallTool || c.Kind == CallHTTP) && c.Tool == nil:
		return cannotMean("name a tool", "there is no tool")
	case c.Cwd != "" && (path.Clean(c.Cwd) != c.Cwd || !path.IsAbs(c.Cwd) || strings.ContainsRune(c.Cwd, 0)):
		return cannotMean("write an absolute path without ..", "working directory %s cannot be meant", quote(c.Cwd))
	case c.Image != "" && c.Rootfs != "":
		return cannotMean("drop one of them", "an image and a root filesystem are both asked for")
	case c.InsecureRegistry && !c.Operator:
		return refuse("built-in: registries speak TLS", "ask the operator", "only the operator asks registries without TLS")
	case c.Override && !c.Operator:
		return refuse("built-in: override", "ask the operator to change the policy", "only the operator overrides limits")
	case c.Override && d.file == nil: // the system's is never gone beyond
		return cannotMean("leave it out, or name the file with --policy", "--override: there is no policy file whose limits it would loosen")
	}
	if n := len(c.Mounts) + len(c.Toolchains) + len(c.Writable) + len(c.Deny) + len(c.Collect) + len(c.Env) + len(c.Network) + len(c.NetworkDeny); n > maxWishes {
		return cannotMean("ask for less", "the call has %d wishes, the most is %d", n, maxWishes)
	}
	for _, a := range c.Argv {
		if strings.ContainsRune(a, 0) {
			return cannotMean("drop the NUL byte", "an argument has a NUL byte")
		}
	}
	return nil
}

// hostPaths refuses host paths that do not come from the operator, and paths
// that cannot be meant from the operator too.
func (d *decision) hostPaths() *refusal {
	c := d.call
	paths := slices.Concat(c.Toolchains)
	if c.Rootfs != "" {
		paths = append(paths, c.Rootfs)
	}
	if r, err := reference.Parse(c.Image); err == nil && r.Local() {
		paths = append(paths, r.Path)
	}
	mounts := slices.Concat(c.Mounts)
	if c.Workspace != nil {
		mounts = append(mounts, *c.Workspace)
	}
	for _, m := range mounts {
		paths = append(paths, m.Source)
	}
	for _, w := range c.Collect {
		if w.Dest != "" {
			paths = append(paths, w.Dest)
		}
	}
	if !c.Operator && len(paths) > 0 {
		return refuse("built-in: host paths", "name a volume that the operator defined", "only the operator names paths of this host")
	}
	for _, p := range paths {
		if r := checkAbsolute(p); r != nil {
			return r
		}
	}
	for _, m := range mounts {
		if m.Access < sandbox.ReadOnly || m.Access > sandbox.ReadWrite {
			return cannotMean("use ro, cow or rw", "mount %s has an %s", quote(m.Source), accessName(m.Access))
		}
		target := m.Target
		if target == "" && c.Cwd != "" {
			target = path.Join(c.Cwd, filepath.Base(m.Source))
		}
		if target == "" {
			continue
		}
		if err := checkTarget(target); err != nil {
			return refuseInvalid("mount "+quote(m.Source), err)
		}
	}
	return nil
}

func (d *decision) isolation() *refusal {
	d.plan.Isolation, d.plan.From["isolation"] = DefaultIsolation, "default"
	for _, f := range d.layers {
		if f.Isolation.Said() {
			d.plan.Isolation, d.plan.From["isolation"] = f.Isolation.V, f.rule(f.Isolation.At)
		}
	}
	want := d.call.Isolation
	if want == "" {
		return nil
	}
	if !slices.Contains(Isolations(), want) {
		return cannotMean(levelHint(want), "isolation %s is not known", quote(want))
	}
	if r := d.each(func(f *File) *refusal { return f.boundIsolation(want) }); r != nil {
		return r
	}
	d.plan.Isolation, d.plan.From["isolation"] = want, "flag"
	return nil
}

// switches settles root and best effort.
func (d *decision) switches() *refusal {
	if r := d.user(); r != nil {
		return r
	}
	if f := d.file; f != nil {
		d.plan.BestEffort = f.BestEffort.V
		d.from("best_effort", f, f.BestEffort.At)
	}
	d.cooling()
	if d.call.BestEffort && !d.plan.BestEffort {
		if r := d.each((*File).boundBestEffort); r != nil {
			return r
		}
		d.plan.BestEffort, d.plan.From["best_effort"] = true, "flag"
	}
	return nil
}

// from notes where a clause of a file comes from, when the file says it.
func (d *decision) from(clause string, f *File, at Pos) {
	if at.Said() {
		d.plan.From[clause] = f.rule(at)
	}
}

// env is the final map: what the file passes, what it sets, what the call
// sets within that.
func (d *decision) env() *refusal {
	env := d.plan.Env
	if f := d.file; f != nil {
		for _, v := range f.Env.Pass {
			if d.call.Lookup == nil {
				break
			}
			if value, ok := d.call.Lookup(v.V); ok && checkEnvValue(value) == nil {
				env[v.V] = value
				d.from("env.pass."+v.V, f, v.At)
			}
		}
		for name, v := range f.Env.Set {
			env[name] = v.V
			d.from("env.set."+name, f, v.At)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.call.Env)) {
		value := d.call.Env[name]
		if err := checkEnvName(name); err != nil {
			return refuseInvalid("env", err)
		}
		if err := checkEnvValue(value); err != nil {
			return refuseInvalid("env "+name, err)
		}
		if r := d.each(func(f *File) *refusal { return f.boundEnv(name, value) }); r != nil {
			return r
		}
		env[name], d.plan.From["env.set."+name] = value, "flag"
	}
	return nil
}
