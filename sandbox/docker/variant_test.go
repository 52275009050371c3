// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// A variant is the same level with another runtime, by a name that engines know;
// where the engine has none of that name it is refused by it.
func TestVariants(t *testing.T) {
	f := newFakeEngine(t)
	f.info["Runtimes"] = map[string]any{"runc": map[string]any{}, "runsc": map[string]any{}}
	d := New(Options{Host: f.host})
	for _, name := range []string{"", "runc", "crun", "runsc ", "../runsc", "runsc:runsc"} {
		if v := d.Variant(name); v != nil {
			t.Errorf("there is a variant %q: %s", name, v.Name())
		}
	}
	for name, lacks := range map[string]string{"runsc": "", "kata": "the engine has no runtime kata"} {
		v := d.Variant(name)
		if v == nil || v.Name() != "docker:"+name || v != d.Variant(name) {
			t.Fatalf("%s: %v", name, v)
		}
		if v.(sandbox.Varied).Variant(name) != nil {
			t.Errorf("a variant of %s has variants", v.Name())
		}
		caps, err := v.Probe(t.Context())
		if err != nil || caps.Unusable != lacks || caps.Network || caps.ReadWrite || caps.CopyOnWrite || caps.Masks {
			t.Errorf("%s: %+v, %v", name, caps, err)
		}
	}
}

// With a kernel of its own between the container and this one nothing of the host
// is mounted, because what was mounted could not be seen. And the engine makes
// the network namespace, because it could not be compared with this host's.
func TestVariantShowsNothing(t *testing.T) {
	s := spec(t)
	f := &facts{at: address{"unix", strings.TrimPrefix(newFakeEngine(t).host, "unix://")}, api: "1.41"}
	d := New(Options{}).Variant("runsc").(*Driver)
	_, err := d.newPlan(s, [32]byte{}, f)
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "a kernel of its own") {
		t.Errorf("with the host's toolchain: %v", err)
	}
	s.Root = sandbox.Root{Dir: s.Root.Dir, Image: &sandbox.Image{Digest: "sha256:" + strings.Repeat("a", 64)}}
	p, err := d.newPlan(s, [32]byte{}, f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	h := p.request.HostConfig
	if h.Runtime != "runsc" || h.NetworkMode != "none" || p.request.NetworkDisabled || len(h.Mounts) > 0 || p.looks || p.here {
		t.Errorf("the engine is asked for %+v", p.request)
	}
	s.Mounts = []sandbox.Mount{{Source: open(t, "/usr"), Name: "/usr", Target: "/mnt", Dir: true}}
	if _, err := d.newPlan(s, [32]byte{}, f); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("with a mount: %v", err)
	}
}

// A runtime's kernel holds other limits than this one, and gVisor's threads and stubs
// are tasks of the host: at the engine's limit of them the whole sandbox ends.
func TestVariantLimits(t *testing.T) {
	f := &facts{at: address{"unix", strings.TrimPrefix(newFakeEngine(t).host, "unix://")}, api: "1.41"}
	for name, want := range map[string]struct {
		tasks  int64
		inodes sandbox.Enforcement
		tells  bool
	}{
		"":      {42, sandbox.Enforced, false},
		"runsc": {532, sandbox.Off, false},
		"kata":  {42, sandbox.Enforced, true},
	} {
		s := spec(t)
		s.Root = sandbox.Root{Dir: s.Root.Dir, Image: &sandbox.Image{Digest: "sha256:" + strings.Repeat("a", 64)}}
		s.Limits.Processes = 10
		f.info.MemoryLimit = true
		p, err := (&Driver{opts: Options{Runtime: name}}).newPlan(s, [32]byte{}, f)
		if err != nil {
			t.Fatal(err)
		}
		p.close()
		if got := p.request.HostConfig.PidsLimit; got != want.tasks {
			t.Errorf("%q: %d tasks, want %d", name, got, want.tasks)
		}
		if got := f.limits(name)[sandbox.LimitInodes].Enforcement; got != want.inodes {
			t.Errorf("%q: a number of files is %s", name, got)
		}
		if got := slices.Contains(p.request.Env, agent.OOMVariable+"=1"); got != want.tells {
			t.Errorf("%q: the agent tells of the memory limit: %v", name, got)
		}
		s.Limits.Inodes, s.Limits.Explicit = 100, map[sandbox.LimitName]bool{sandbox.LimitInodes: true}
		if err := s.Limits.Check(f.limits(name)); (err != nil) != (want.inodes == sandbox.Off) {
			t.Errorf("%q: a number of files that was written down: %v", name, err)
		}
	}
}

// Kata Containers that an engine calls as a program tell it nothing of what is used, and
// processor time is refused before a virtual machine is booted for that. Of those that
// containerd speaks with it knows no path, and they are asked.
func TestVariantCPUTime(t *testing.T) {
	f := &facts{api: "1.41"}
	f.info.Runtimes = map[string]any{"kata": map[string]any{"path": "/usr/bin/kata-runtime"}, "runsc": map[string]any{"path": "/usr/bin/runsc"}}
	newer := &facts{api: "1.41"}
	newer.info.Runtimes = map[string]any{"kata": map[string]any{"runtimeType": "io.containerd.kata.v2", "path": ""}}
	for _, tt := range []struct {
		f    *facts
		name string
		want sandbox.Enforcement
	}{{f, "", sandbox.Enforced}, {f, "runsc", sandbox.Enforced}, {f, "kata", sandbox.Off}, {newer, "kata", sandbox.Enforced}, {&facts{}, "kata", sandbox.Enforced}} {
		if c := tt.f.limits(tt.name)[sandbox.LimitCPUTime]; c.Enforcement != tt.want || (c.Remedy != "") != (tt.want == sandbox.Off) {
			t.Errorf("%q of %v: %+v", tt.name, tt.f.info.Runtimes, c)
		}
	}
}

// What an engine reports of a container is believed if it reports the limit that was
// asked for: where a runtime has its processes elsewhere it reports what is left of the
// group. Processor time cannot be counted then.
func TestVariantFigures(t *testing.T) {
	fake := newFakeEngine(t)
	e := fakeCalls(t, fake)
	const asked = 64 << 20
	for limit, tells := range map[string]bool{`,"limit":67108864`: true, `,"limit":67104768`: true, `,"limit":25276510208`: false, `,"limit":4096`: false, ``: false} {
		fake.answers = map[string]string{"/containers/c/stats": `{"cpu_stats":{"cpu_usage":{"total_usage":7}},"memory_stats":{"usage":5` + limit + `},"pids_stats":{"current":3}}`}
		m := meter{engine: e, name: "c", asked: asked}
		u, err := m.usage(t.Context())
		if err != nil || (u.CPU != nil) != tells || (u.Memory != nil) != tells || (u.Processes != nil) != tells {
			t.Errorf("reported %q: %+v, %v", limit, u, err)
		}
		l := sandbox.Limits{CPUTime: time.Second, Explicit: map[sandbox.LimitName]bool{sandbox.LimitCPUTime: true}}
		if err := m.holds(t.Context(), &l, "kata"); (err == nil) != tells || err != nil && !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("reported %q, and processor time is limited: %v", limit, err)
		}
		// A kernel inside holds memory; gVisor has it held by the engine's group.
		l = sandbox.Limits{Memory: asked, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
		for _, name := range Runtimes() {
			if err := m.holds(t.Context(), &l, name); (err == nil) != (tells || name == "kata") {
				t.Errorf("reported %q, and memory is limited with %s: %v", limit, name, err)
			}
		}
		l = sandbox.Limits{CPUTime: time.Second}
		if err := m.holds(t.Context(), &l, "kata"); err != nil {
			t.Errorf("reported %q, and nobody has written a limit down: %v", limit, err)
		}
		m.asked = 0 // the engine's own runtime
		if u, err := m.usage(t.Context()); err != nil || u.CPU == nil {
			t.Errorf("reported %q with the engine's own runtime: %+v, %v", limit, u, err)
		}
	}
}

// While a container runs, an engine that does not tell any more what it uses is an error,
// and not what it told last: the holder of a limit would not notice. After its end that
// counts.
func TestUsageThatIsNotTold(t *testing.T) {
	const stats, told = "/containers/c/stats", `{"cpu_stats":{"cpu_usage":{"total_usage":7}}}`
	fake := newFakeEngine(t)
	fake.answers = map[string]string{}
	answer := func(s string) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		fake.answers[stats] = s
	}
	e := fakeCalls(t, fake)
	i := &instance{engine: e, name: "c", meter: meter{engine: e, name: "c"}, ended: make(chan struct{}), stream: &attached{broken: make(chan struct{})}}
	for _, s := range []string{told, "", `{}`, told} {
		answer(s)
		if u, err := i.Usage(t.Context()); (err == nil) != (s == told) || err == nil && *u.CPU != 7 {
			t.Errorf("told %q: %+v, %v", s, u, err)
		}
	}
	close(i.ended)
	for _, s := range []string{"", `{}`} {
		answer(s)
		if u, err := i.Usage(t.Context()); err != nil || u.CPU == nil || *u.CPU != 7 {
			t.Errorf("after its end, told %q: %+v, %v", s, u, err)
		}
	}
}

// What stands still under a runtime that was named goes on before it is removed, also
// where its owner is dead; anything else is removed as it is.
func TestRemovesWhatStandsStill(t *testing.T) {
	const id = "sbx_0123456789abcdef"
	path, run := "/containers/"+containerName(id), t.TempDir()
	for answer, want := range map[string]bool{
		`"State":{"Paused":true},"HostConfig":{"Runtime":"runsc"}`:  true,
		`"State":{"Paused":true},"HostConfig":{"Runtime":"kata"}`:   true,
		`"State":{"Paused":true},"HostConfig":{"Runtime":"runc"}`:   false,
		`"State":{"Paused":false},"HostConfig":{"Runtime":"runsc"}`: false,
	} {
		fake := newFakeEngine(t)
		answer = `{"Config":{"Labels":{"` + labelState + `":"` + mounts.DirectoryMark(run) + `"}},` + answer + `}`
		fake.answers = map[string]string{path + "/json": answer, path + "/unpause": " "}
		if err := New(Options{Host: fake.host}).Sweep(t.Context(), id, filepath.Join(run, id)); err != nil {
			t.Fatal(err)
		}
		on, removed := slices.Index(fake.calls, "POST "+path+"/unpause"), slices.Index(fake.calls, "DELETE "+path)
		if (on >= 0) != want || removed < on || removed < 0 {
			t.Errorf("%s: %q", answer, fake.calls)
		}
	}
}

// A process is taken for a container's where its memory is counted for the container.
func TestContainerGroup(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for groups, want := range map[string]bool{
		"5:name=systemd:/x\n4:memory:/docker/" + id + "\n1:cpu,cpuacct:/docker/" + id + "\n0::/\n": true,
		"9:cpuset:/\n3:cpu,memory:/libpod_parent/libpod-" + id + "\n":                              true,
		"0::/system.slice/docker-" + id + ".scope\n":                                               true,
		"0::/machine.slice/libpod-" + id + ".scope\n":                                              true,
		"0::/docker/" + id: true,
		// Another container's, the test's own, and one that memory is not in.
		"0::/docker/" + strings.Repeat("f", 64):                  false,
		"4:memory:/docker/kata_" + id + "\n":                     false,
		"0::/machine.slice/libpod-conmon-" + id + ".scope\n":     false,
		"4:memory:/user\n0::/docker/" + id + "\n":                false,
		"0::/docker/" + id + "\n4:memory:/user\n":                false,
		"4:memory:/docker/" + id + "/x\n":                        false,
		"4:memory\n" + id + "\n":                                 false,
		"2:name=systemd:/docker/" + id + "\n1:cpu:/docker/" + id: false,
		"": false,
	} {
		if got := containerGroup(groups, id); got != want {
			t.Errorf("%q: %v", groups, got)
		}
	}
	if containerGroup("4:memory:/\n", "") || containerGroup("4:memory:/x\n", "x") {
		t.Error("it takes what is no ID")
	}
}

// The memory limit inside is told by the agent, on a line of its own; and by its death,
// if it was not killed from outside.
func TestMemoryLimitInside(t *testing.T) {
	a := &attached{}
	a.log.maximum = logTail
	for _, said := range []string{"not " + agent.OOMLine + "\n", agent.OOMLine + " yet\n", agent.OOMLine[:5]} {
		a.complain([]byte(said))
		if a.outOfMemory() {
			t.Fatalf("it was not said by %q", said)
		}
	}
	a.complain([]byte(agent.OOMLine[5:] + "\n"))
	a.complain([]byte(strings.Repeat("x", 2*logTail)))
	if !a.outOfMemory() {
		t.Error("it was said")
	}

	fake := newFakeEngine(t)
	e := fakeCalls(t, fake)
	for _, v := range []struct {
		inside bool
		exit   int
		events string
		want   sandbox.LimitName
	}{
		{true, 137, "\n", sandbox.LimitMemory},
		{true, 137, `{"Action":"kill","status":"kill"}`, ""},
		{true, 137, `{`, ""},
		{true, 1, "\n", ""},
		{false, 137, "\n", ""},
		{false, 137, `{"Action":"oom","status":"oom"}`, sandbox.LimitMemory},
	} {
		fake.answers = map[string]string{"/events": v.events}
		i := &instance{engine: e, name: "c", inside: v.inside}
		i.judge(t.Context(), v.exit, time.Now())
		if i.Limit() != v.want {
			t.Errorf("%+v: ended by %q", v, i.Limit())
		}
	}
}

// fakeCalls is an engine to call.
func fakeCalls(t *testing.T, f *fakeEngine) *engine {
	t.Helper()
	a, err := findEngine(f.host)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	return e
}
