// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/google/go-cmp/cmp"
)

// levels are a good level, one that has little, and one that cannot run.
func levels() map[string]sandbox.Capabilities {
	all, some := map[sandbox.LimitName]sandbox.Clause{}, map[sandbox.LimitName]sandbox.Clause{}
	for _, n := range sandbox.LimitNames() {
		all[n] = sandbox.Clause{Enforcement: sandbox.Enforced}
	}
	some["wall"] = sandbox.Clause{Enforcement: sandbox.Enforced}
	some["memory"] = sandbox.Clause{Enforcement: sandbox.Emulated, Detail: "sampled"}
	some["cpus"] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "no cgroup", Remedy: "systemd-run"}
	return map[string]sandbox.Capabilities{
		"gvisor":  {Limits: all, Root: true, CopyOnWrite: true, ReadWrite: true, Masks: true},
		"process": {Limits: some},
		"vm":      {Unusable: "there is no /dev/kvm", Remedy: "modprobe kvm"},
	}
}

// row writes a clause as one line.
func row(c Clause) string {
	s := fmt.Sprintf("%s = %s (%s)", c.Name, c.Value, c.From)
	for _, l := range []string{"gvisor", "process", "vm"} {
		s += " " + string(c.Levels[l].Enforcement)
	}
	return s
}

func TestExplain(t *testing.T) {
	p := policyOf(t, "", `
isolation: gvisor
user: root
limits: {memory: 1GiB, cpus: 0.5}
watch: [{when: "memory_percent > 90", for: 3s}, {when: "disk > 1MiB"}]
files: {workspace: {source: .}, mounts: [{source: /d, target: /d, mode: rw}], deny: ["**/.env"], collect: [out], writable: [/tmp], toolchains: [/opt/go], rootfs: /t}
env: {set: {TOKEN: hush}, pass: [LANG]}
`)
	v := p.Decide(command(together(wantLimit("wall", 1e9), func(c *Call) {
		c.Lookup = func(string) (string, bool) { return "C", true }
		c.Collect = []CollectWish{{Pattern: "out"}}
	})))
	var got []string
	for _, c := range ExplainPlan(p, true, &v.Plan, levels()) {
		got = append(got, row(c))
	}
	want := []string{
		"isolation = gvisor (/w/p.yaml:3) enforced refused refused",
		"user = root (/w/p.yaml:4) enforced refused refused",
		"best_effort = false (default) enforced enforced refused",
		"network = none (default) enforced enforced refused",
		"limits.wall = 1s (flag) enforced enforced refused",
		"limits.cpu_time = none (default) off off refused",
		"limits.cpus = 0.5 (/w/p.yaml:5) enforced refused refused",
		"limits.memory = 1GiB (/w/p.yaml:5) enforced refused refused",
		"limits.processes = 128 (default) enforced off refused",
		"limits.open_files = 1024 (default) enforced off refused",
		"limits.file_size = none (default) off off refused",
		"limits.disk = 512MiB (default) enforced off refused",
		"limits.inodes = 131072 (default) enforced off refused",
		"limits.tmp = 100MiB (default) enforced off refused",
		"limits.io = none (default) off off refused",
		"limits.iops = none (default) off off refused",
		"limits.output = 1MiB (default) enforced off refused",
		"limits.on_output = truncate (default) enforced enforced refused",
		"watch = memory_percent > 90 for 3s, kill (/w/p.yaml:6) emulated emulated refused",
		"watch = disk > 1MiB, kill (/w/p.yaml:6) refused refused refused",
		"files.workspace = /w cow (/w/p.yaml:7) enforced refused refused",
		"files.mounts = /d at /d rw (/w/p.yaml:7) enforced refused refused",
		"files.toolchains = /opt/go (/w/p.yaml:7) enforced enforced refused",
		"files.rootfs = /t (/w/p.yaml:7) enforced enforced refused",
		"files.writable = /tmp (/w/p.yaml:7) enforced enforced refused",
		"files.deny = **/.env (/w/p.yaml:7) enforced refused refused",
		"files.collect = out may be taken out (/w/p.yaml:7) enforced enforced refused",
		"files.collect = out is taken out (flag) enforced enforced refused",
		"env.pass.LANG = from the caller (/w/p.yaml:8) enforced enforced refused",
		"env.set.TOKEN = set (/w/p.yaml:8) enforced enforced refused",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if strings.Contains(strings.Join(got, ""), "hush") {
		t.Error("a value of the environment is shown")
	}
}

// A sudoer is the user everywhere, and root where a level has one of its own.
func TestExplainSudoer(t *testing.T) {
	p := policyOf(t, "", "user: sudoer\nenv: {any: true}")
	for _, c := range Explain(p, levels()) {
		switch c.Name {
		case "user":
			if got := row(c); got != "user = user, or root where that is asked for by name (/w/p.yaml:2) enforced enforced refused" || c.Levels["gvisor"].Detail != "" ||
				!strings.Contains(c.Levels["process"].Detail, "root is refused") {
				t.Errorf("%s: %+v", got, c)
			}
			continue
		case "env.any":
			if got := row(c); got != "env.any = calls set any variable (/w/p.yaml:3) enforced enforced refused" {
				t.Error(got)
			}
			return
		}
	}
	t.Error("a clause is missing")
}

// TestExplainDetails: reasons and remedies of the levels come through, and
// best effort turns a refused limit into one that is off.
func TestExplainDetails(t *testing.T) {
	find := func(name string, cs []Clause) Clause {
		for _, c := range cs {
			if c.Name == name {
				return c
			}
		}
		t.Fatalf("no clause %s", name)
		return Clause{}
	}
	strict := find("limits.cpus", Explain(policyOf(t, "", "limits: {cpus: 1}"), levels()))
	if c := strict.Levels["process"]; c.Enforcement != Refused || c.Detail != "no cgroup" || c.Remedy != "systemd-run" {
		t.Errorf("%+v", c)
	}
	if c := strict.Levels["vm"]; c.Detail != "there is no /dev/kvm" || c.Remedy != "modprobe kvm" {
		t.Errorf("%+v", c)
	}
	loose := find("limits.cpus", Explain(policyOf(t, "", "limits: {cpus: 1}\nbest_effort: true"), levels()))
	if c := loose.Levels["process"]; c.Enforcement != sandbox.Off {
		t.Errorf("%+v", c)
	}
	unsaid := find("limits.memory", Explain(policyOf(t, "", "limits: {cpus: 1}"), levels()))
	if c := unsaid.Levels["process"]; c.Enforcement != sandbox.Emulated {
		t.Errorf("a default that is sampled: %+v", c)
	}
	for file, want := range map[string]sandbox.Clause{
		"": {Enforcement: sandbox.Off, Detail: "a call has to ask for it, as with --isolation process"},
		"limits: {cpus: 1}": {Enforcement: Refused, Detail: "process is not known to be at least as strong as gvisor, and the policy names no isolation",
			Remedy: "add to /w/p.yaml: isolation: process"},
		"isolation: gvisor": {Enforcement: Refused, Detail: "isolation is gvisor"},
	} {
		if got := find("isolation", Explain(policyOf(t, "", file), levels())).Levels["process"]; got != want {
			t.Errorf("%q: %+v", file, got)
		}
	}
	beyond := Explain(policyOf(t, "user: user", "user: root"), levels())
	if len(beyond) != 1 || beyond[0].From != "/etc/caisson/policy.yaml:2" || beyond[0].Levels["gvisor"].Enforcement != Refused {
		t.Errorf("a file beyond the system's: %+v", beyond)
	}
}
