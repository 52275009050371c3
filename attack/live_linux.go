// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/internal/linux/seccomp"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// evidence is what the live sandbox shows, from outside.
type evidence struct {
	*suite
	out     *probeLog
	posture sandbox.Posture
	start   []*process // before the attempts
	ready   []*process // after them, while everything that was had is held
	shared  bool       // the host sees the probe: the kernel that answers it is the host's
	records string     // file of the state directory that holds the secret
	traced  string     // who traces the victim
	waited  string     // whom a lease of the sandbox makes wait
	changed map[string]bool
	told    []sandbox.Finding // what caisson says itself that it left
}

// live makes the attempts that can share a sandbox. Those that plant something
// for the host share another: where they work, the road itself ends the sandbox
// when it sees a name replaced, and the others with it.
func (s *suite) live(ctx context.Context, report func(id string, v Verdict, reason, mend string, tried int)) {
	planting := []string{"F15", "F16", "F26"}
	var others, plant []string
	for _, id := range liveCases() {
		switch {
		case !s.wants(id):
		case slices.Contains(planting, id):
			plant = append(plant, id)
		default:
			others = append(others, id)
		}
	}
	for _, ids := range [][]string{others, plant} {
		if len(ids) > 0 && ctx.Err() == nil {
			s.together(ctx, ids, report)
		}
	}
}

// together makes the attempts of some cases in one sandbox, and judges them.
func (s *suite) together(ctx context.Context, ids []string, report func(id string, v Verdict, reason, mend string, tried int)) {
	config := s.config
	config.Only, config.Refused = ids, refused()
	text, _ := json.Marshal(config)
	access := sandbox.ReadWrite
	if s.Copies {
		access = sandbox.CopyOnWrite
	}
	sc := s.begin(ctx, func(c *session.Call) {
		c.Mounts = append(c.Mounts, policy.MountWish{Source: s.data, Target: probe.AtData})
		c.Workspace = &policy.MountWish{Source: s.workspace, Target: probe.AtWorkspace, Access: access, Shared: !s.Copies}
		c.Deny = hidden()
		c.Env = map[string]string{"CAISSON_ATTACK_SECRET": s.secret}
		c.Limits.Memory, c.Limits.Processes = 1<<30, 512
		c.Limits.Explicit = map[sandbox.LimitName]bool{sandbox.LimitMemory: true, sandbox.LimitProcesses: true}
		c.BestEffort = true // these attempts are not about limits
	}, probe.ModeLive, string(text))
	e := &evidence{suite: s, out: &sc.out, changed: make(map[string]bool)}
	err := sc.wait(probe.CaseStart)
	if err == nil {
		e.start = examine(s.mine())
		if _, err = sc.enter.Write([]byte{'\n'}); err == nil {
			err = sc.wait(probe.CaseReady)
		}
	}
	if err == nil {
		e.ready = examine(s.mine())
		e.traced = tracer(s.victim.Process.Pid)
		e.waited = leased(filepath.Join(s.data, "F25"))
	}
	sc.end()
	if err != nil && (sc.res == nil || sc.res.Rule == "" || sc.res.Status == sandbox.StatusDenied) {
		v, reason, mend := notRun(err)
		for _, id := range ids {
			report(id, v, reason, mend, 0)
		}
		return
	}
	// What a rule ended while it ran may have done its harm before.
	e.posture, e.told = sc.res.Posture, sc.res.Findings
	e.shared = slices.ContainsFunc(e.ready, func(p *process) bool { return nonced(p.pid, s.nonce) || p.argvHas(s.nonce) })
	e.after(ctx)
	if ctx.Err() != nil {
		return // not all was looked at
	}
	for _, id := range ids {
		v, reason := e.judge(id)
		report(id, v, reason, "", len(e.out.Of(id)))
	}
}

func (p *process) argvHas(nonce string) bool {
	return slices.ContainsFunc(p.argv, func(a string) bool { return strings.Contains(a, nonce) })
}

// liveCases are those of the one sandbox, in the order of Cases.
func liveCases() []string {
	var ids []string
	for _, c := range Cases() {
		if _, ok := judges()[c.ID]; ok {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// examine looks at each process; those that end meanwhile are left out.
func examine(list []*process) (seen []*process) {
	for _, p := range list {
		if p.look() == nil {
			seen = append(seen, p)
		}
	}
	return seen
}

// blind is a process that must be looked at and cannot be: the probe's own,
// where the host sees these, else all.
func (e *evidence) blind() *process {
	for _, p := range e.insiders() {
		if p.hidden != nil && (!e.shared || p.argvHas(e.nonce)) {
			return p
		}
	}
	return nil
}

func tracer(pid int) string {
	data, _ := readProc(pid, "status")
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// after gathers what the end of the sandbox leaves.
func (e *evidence) after(ctx context.Context) {
	want := map[string]string{"F09": "unchanged\n", "F21": "unchanged\n", "F16": gitConfig}
	for id, name := range e.before {
		data, err := os.ReadFile(name)
		e.changed[id] = err != nil || string(data) != want[id]
	}
	for _, name := range probe.NewFiles() {
		data, err := os.ReadFile(filepath.Join(e.workspace, name))
		if err == nil && strings.Contains(string(data), e.nonce) {
			e.changed["F15"] = true
		}
	}
	for _, name := range []string{e.workspace + "/.git/hooks/post-checkout", e.workspace + "/.git/config"} {
		data, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(data), e.nonce) {
			e.changed["F16"] = true
		}
	}
	for _, name := range probe.RunnableFiles() {
		data, err := os.ReadFile(filepath.Join(e.workspace, name))
		if err == nil && strings.Contains(string(data), e.nonce) {
			e.changed["F26"] = true
		}
	}
	e.records = holds(ctx, e.State, e.secret)
}

// refused are system calls for which the filter of levels that share the host's
// kernel answers EPERM or ENOSYS whatever their arguments.
func refused() []probe.Junk {
	names, err := seccomp.Refused(runtime.GOARCH)
	if err != nil {
		return nil
	}
	var all []probe.Junk
	for _, number := range slices.Sorted(maps.Keys(names)) {
		// vhangup has no arguments that could be wrong.
		if name := names[number]; name != "vhangup" {
			all = append(all, probe.Junk{Number: number, Name: name})
		}
	}
	return all
}
