// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/sandbox"
)

// spec is a fixture on a root of directories.
func spec(t testing.TB) *sandbox.Spec {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"root/usr", "root/etc", "root/home/user", "root/tmp", "root/mnt", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(engineFiles, "passwd") {
		if err := os.WriteFile(filepath.Join(dir, "root/etc", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "root/bin")); err != nil {
		t.Fatal(err)
	}
	return &sandbox.Spec{
		ID: "sbx_0123456789abcdef", User: sandbox.DefaultUser(), Limits: sandbox.DefaultLimits(), StateDir: filepath.Join(dir, "state"),
		Root:    sandbox.Root{Dir: open(t, filepath.Join(dir, "root")), Binds: []sandbox.Mount{{Source: open(t, "/usr"), Name: "/usr", Target: "/usr", Dir: true}}},
		Scratch: []sandbox.Scratch{{Target: "/home/user"}, {Target: "/tmp", Size: 1 << 20, Sticky: true}, {Target: "/dev/shm", Size: 1 << 20, Memory: true, Sticky: true}},
	}
}

func open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// allowed are the only keys that may ever reach an engine.
var allowed = map[string][]string{
	"": {"Hostname", "User", "AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin", "StdinOnce", "Env", "Entrypoint", "Image", "WorkingDir", "Labels", "NetworkDisabled", "HostConfig"},
	"HostConfig": {"AutoRemove", "CapDrop", "CapAdd", "CgroupnsMode", "IpcMode", "NetworkMode", "ReadonlyRootfs", "SecurityOpt", "MaskedPaths", "LogConfig", "Dns", "DnsSearch",
		"Tmpfs", "Mounts", "Memory", "MemorySwap", "KernelMemoryTCP", "NanoCpus", "PidsLimit", "Ulimits", "Runtime"},
	"Mount":       {"Type", "Source", "Target", "ReadOnly", "BindOptions"},
	"BindOptions": {"Propagation", "NonRecursive", "ReadOnlyForceRecursive"},
}

// checkRequest demands that a request asks for nothing dangerous. It reads the
// JSON as an engine does, not the struct it was made from.
func checkRequest(raw json.RawMessage, sources []string) (wrong []string) {
	object := func(kind string, raw json.RawMessage) map[string]json.RawMessage {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s is no object: %s", kind, raw))
		}
		for key := range m {
			// Engines read keys as Go does: in any case.
			if !slices.ContainsFunc(allowed[kind], func(a string) bool { return strings.EqualFold(a, key) }) {
				wrong = append(wrong, fmt.Sprintf("%s asks for %s: %s", kind, key, m[key]))
			}
		}
		return m
	}
	want := func(m map[string]json.RawMessage, key, value string) {
		if string(m[key]) != value {
			wrong = append(wrong, fmt.Sprintf("%s is %s, want %s", key, m[key], value))
		}
	}
	top := object("", raw)
	want(top, "StdinOnce", "true")
	want(top, "User", `"0:0"`)
	host := object("HostConfig", top["HostConfig"])
	want(host, "NetworkMode", `"none"`)
	want(host, "IpcMode", `"none"`)
	want(host, "CgroupnsMode", `"private"`)
	want(host, "ReadonlyRootfs", "true")
	want(host, "AutoRemove", "true")
	want(host, "CapDrop", `["ALL"]`)
	want(host, "LogConfig", `{"Type":"none"}`)
	var security []string
	if err := json.Unmarshal(host["SecurityOpt"], &security); err != nil || len(security) != 2 || security[0] != "no-new-privileges:true" {
		wrong = append(wrong, "SecurityOpt is "+string(host["SecurityOpt"]))
	} else if filter, ok := strings.CutPrefix(security[1], "seccomp={"); !ok || !strings.Contains(filter, `"defaultAction":"SCMP_ACT_ERRNO"`) {
		wrong = append(wrong, "the filter is "+security[1])
	}
	if !strings.Contains(string(host["MaskedPaths"]), `"/proc/kcore"`) {
		wrong = append(wrong, "MaskedPaths is "+string(host["MaskedPaths"]))
	}
	var caps []string
	if err := json.Unmarshal(host["CapAdd"], &caps); err != nil || len(caps) > 8 {
		wrong = append(wrong, "CapAdd is "+string(host["CapAdd"]))
	}
	for _, c := range caps {
		if !slices.Contains(agentCapabilities, c) {
			wrong = append(wrong, "capability "+c)
		}
	}
	var mounts []json.RawMessage
	if err := json.Unmarshal(host["Mounts"], &mounts); err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, raw := range mounts {
		if own, err := json.Marshal(terminals()); err == nil && string(raw) == string(own) {
			continue
		}
		m := object("Mount", raw)
		options := object("BindOptions", m["BindOptions"])
		want(m, "Type", `"bind"`)
		want(options, "Propagation", `"rprivate"`)
		var source string
		if json.Unmarshal(m["Source"], &source) != nil || !slices.ContainsFunc(sources, func(s string) bool { return sandbox.Within(source, s) }) {
			wrong = append(wrong, "it mounts "+string(m["Source"]))
		}
	}
	return wrong
}

// Whatever a Spec says, only what caisson knows reaches the engine.
func TestOnlyKnownFieldsReachTheEngine(t *testing.T) {
	fake := newFakeEngine(t)
	base := spec(t)
	data := t.TempDir()
	file := open(t, data)
	words := []string{"", "container:x", "host", "/var/run/docker.sock", "privileged", `","Privileged":true,"x":"`, "../..", "ünï", "rw,exec,suid,dev", "a:b:c", "-v", "\x00", "\n"}
	word := rapid.SampledFrom(words)
	refused, refusals := map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		s := *base
		var err error
		if s.StateDir, err = os.MkdirTemp(base.StateDir, ""); err != nil {
			r.Fatal(err)
		}
		// One thing is strange at a time: two are refused for the first.
		odd := rapid.IntRange(0, 6).Draw(r, "odd")
		pick := func(field int, usual, label string) string {
			if field == odd {
				return word.Draw(r, label)
			}
			return usual
		}
		s.Hostname = pick(0, "sandbox", "hostname")
		s.User.Name, s.User.Home = pick(1, "user", "user"), pick(2, "/home/user", "home")
		s.Scratch = append(slices.Clone(s.Scratch), sandbox.Scratch{Target: "/" + pick(3, "scratch", "scratch"), Size: rapid.Int64Range(0, 1<<30).Draw(r, "size")})
		s.Mounts = []sandbox.Mount{{Source: file, Name: pick(4, "data", "name"), Target: "/mnt/" + pick(5, "data", "target"), Dir: true}}
		if odd == 6 {
			s.User.UID, s.Mounts[0].Access = rapid.IntRange(-1, 3).Draw(r, "uid"), sandbox.Access(rapid.IntRange(0, 2).Draw(r, "access"))
		}
		s.Limits.Memory = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(sandbox.LeastMemory, 1<<40)).Draw(r, "memory")
		s.Limits.CPUs = rapid.Float64Range(0, 100).Draw(r, "cpus")
		before := fake.count()
		d := New(Options{Host: fake.host})
		_, err = d.Start(context.Background(), &s)
		if err == nil {
			r.Fatal("an engine that makes nothing has made something")
		}
		if fake.count() == before {
			refused[err.Error()]++
			refusals++
			return // before it was asked
		}
		if wrong := checkRequest(fake.asked(t), []string{data, "/usr", filepath.Dir(base.StateDir)}); len(wrong) > 0 {
			r.Fatalf("%q\n%s", wrong, fake.asked(t))
		}
	})
	if fake.count() < refusals {
		t.Errorf("nearly every Spec was refused: %v", refused)
	}
}

// The check itself must be able to fail.
func TestCheckRequestBites(t *testing.T) {
	fake := newFakeEngine(t)
	s := spec(t)
	_, _ = New(Options{Host: fake.host}).Start(t.Context(), s)
	good := string(fake.asked(t))
	sources := []string{"/usr", filepath.Dir(s.StateDir)}
	if wrong := checkRequest(json.RawMessage(good), sources); len(wrong) > 0 {
		t.Fatalf("the usual request: %q", wrong)
	}
	for name, change := range map[string][2]string{
		"privileged":          {`"AutoRemove"`, `"Privileged":true,"AutoRemove"`},
		"privileged in lower": {`"AutoRemove"`, `"privileged":true,"AutoRemove"`},
		"the host's pids":     {`"AutoRemove"`, `"PidMode":"host","AutoRemove"`},
		"a neighbour's net":   {`"NetworkMode":"none"`, `"NetworkMode":"container:x"`},
		"devices":             {`"AutoRemove"`, `"Devices":[{"PathOnHost":"/dev/sda"}],"AutoRemove"`},
		"binds":               {`"AutoRemove"`, `"Binds":["/var/run/docker.sock:/s"],"AutoRemove"`},
		"volumes from":        {`"AutoRemove"`, `"VolumesFrom":["x"],"AutoRemove"`},
		"the socket":          {`"Source":"/usr"`, `"Source":"/var/run/docker.sock"`},
		"a volume":            {`"Type":"bind"`, `"Type":"volume"`},
		"shared mounts":       {`"rprivate"`, `"rshared"`},
		"no seccomp":          {`"seccomp={`, `"seccomp=unconfined{`},
		"new privileges":      {`"no-new-privileges:true"`, `"label=x"`},
		"a capability":        {`"CapAdd":["`, `"CapAdd":["SYS_ADMIN","`},
		"nothing masked":      {`"/proc/kcore"`, `"/proc/x"`},
		"a writable root":     {`"ReadonlyRootfs":true`, `"ReadonlyRootfs":false`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good {
			t.Errorf("%s: %q is not in the request", name, change[0])
		}
		if len(checkRequest(json.RawMessage(bad), sources)) == 0 {
			t.Errorf("%s: nothing said so", name)
		}
	}
}

// The engine's socket is refused under any name, and so is what leads to it.
func TestSocketIsRefused(t *testing.T) {
	fake := newFakeEngine(t)
	socket := strings.TrimPrefix(fake.host, "unix://")
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Dir(socket), link); err != nil {
		t.Fatal(err)
	}
	hard := filepath.Join(filepath.Dir(socket), "hard")
	if err := os.Link(socket, hard); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"the socket": socket, "another name of it": hard, "its directory": filepath.Dir(socket), "through a link": link, "/tmp": os.TempDir(), "/": "/",
	} {
		f, err := openFollowing(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		s := spec(t)
		s.Mounts = []sandbox.Mount{{Source: f, Name: path, Target: "/mnt/x", Dir: info.IsDir()}}
		_, err = New(Options{Host: fake.host}).Start(t.Context(), s)
		var e *sandbox.Error
		if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrDenied) || e.Rule == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if fake.count() > 0 {
		t.Error("the engine was asked all the same")
	}
}

func TestRefusals(t *testing.T) {
	fake := newFakeEngine(t)
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		want   error
	}{
		"root":            {func(s *sandbox.Spec) { s.User = sandbox.RootUser() }, sandbox.ErrUnsupported},
		"sudo":            {func(s *sandbox.Spec) { s.Sudo = true }, sandbox.ErrUnsupported},
		"group root":      {func(s *sandbox.Spec) { s.User.GID = 0 }, sandbox.ErrUnsupported},
		"on the agent":    {func(s *sandbox.Spec) { s.Scratch = append(s.Scratch, sandbox.Scratch{Target: agentDir}) }, sandbox.ErrInvalid},
		"not opened":      {func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Target: "/mnt", Dir: true}} }, sandbox.ErrInvalid},
		"a spoilt digest": {func(s *sandbox.Spec) { s.Root.Image = &sandbox.Image{Digest: "sha256:../.."} }, sandbox.ErrInvalid},
		"a mount in a file": {func(s *sandbox.Spec) {
			s.Mounts = []sandbox.Mount{{Source: open(t, t.TempDir()), Target: "/etc/passwd/x", Dir: true}}
		}, sandbox.ErrInvalid},
		"a limit that is off": {func(s *sandbox.Spec) {
			s.Limits.IO, s.Limits.Explicit = 1, map[sandbox.LimitName]bool{sandbox.LimitIO: true}
		}, sandbox.ErrUnsupported},
	} {
		s := spec(t)
		c.change(s)
		if _, err := New(Options{Host: fake.host}).Start(t.Context(), s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if fake.count() > 0 {
		t.Errorf("the engine was asked all the same: %s", fake.created)
	}
}

// Where the engine has a user namespace of its own, what code writes would
// belong to no user of this host.
func TestMappedEngineWritesNothing(t *testing.T) {
	fake := newFakeEngine(t)
	fake.info["SecurityOptions"] = []string{"name=seccomp,profile=default", "name=userns"}
	for _, a := range []sandbox.Access{sandbox.CopyOnWrite, sandbox.ReadWrite} {
		s := spec(t)
		s.Mounts = []sandbox.Mount{{Source: open(t, t.TempDir()), Target: "/mnt", Dir: true, Access: a}}
		if _, err := New(Options{Host: fake.host}).Start(t.Context(), s); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%v: %v", a, err)
		}
	}
	if fake.count() > 0 {
		t.Error("the engine was asked all the same")
	}
	c, err := New(Options{Host: fake.host}).Probe(t.Context())
	if err != nil || c.Unusable != "" || c.ReadWrite || c.CopyOnWrite || !c.Masks {
		t.Errorf("%+v, %v", c, err)
	}
}

// A container that an engine makes while its caller goes away is removed.
func TestCancelledWhileItIsMade(t *testing.T) {
	fake := newFakeEngine(t)
	ctx, cancel := context.WithCancel(t.Context())
	fake.make = func() {
		cancel()
		<-ctx.Done()
	}
	s := spec(t)
	if _, err := New(Options{Host: fake.host}).Start(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if !slices.Contains(fake.calls, "DELETE /containers/"+containerName(s.ID)) {
		t.Errorf("it is left: %q", fake.calls)
	}
}

// A caller that wants another level waits once for an engine that hangs.
func TestSweepAsksADeafEngineOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "deaf-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s")) // never accepted
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := New(Options{Host: "unix://" + filepath.Join(dir, "s")})
	if err := d.Sweep(t.Context(), "sbx_0123456789abcdef", ""); err == nil || !d.deaf {
		t.Errorf("it has answered: %v", err)
	}
	if err := d.Sweep(t.Context(), "sbx_0123456789abcdef", ""); err != nil {
		t.Errorf("it was asked again: %v", err)
	}
	if err := New(Options{Host: "unix://" + filepath.Join(dir, "none")}).Sweep(t.Context(), "sbx_0123456789abcdef", ""); err != nil {
		t.Errorf("no engine: %v", err)
	}
}

// A copy of a state directory has the same IDs: its sweep leaves the containers alone
// that were made for the original.
func TestSweepLeavesTheContainerOfAnother(t *testing.T) {
	s, fake := spec(t), newFakeEngine(t)
	d := New(Options{Host: fake.host})
	_, _ = d.Start(t.Context(), s)
	var made struct{ Labels json.RawMessage }
	if err := json.Unmarshal(fake.asked(t), &made); err != nil {
		t.Fatal(err)
	}
	path := "/containers/" + containerName(s.ID)
	for dir, ours := range map[string]bool{s.StateDir: true, filepath.Join(t.TempDir(), "state"): false} {
		fake.calls, fake.answers = nil, map[string]string{path + "/json": `{"Config":{"Labels":` + string(made.Labels) + `}}`}
		if err := d.Sweep(t.Context(), s.ID, dir); err != nil {
			t.Fatal(err)
		}
		if removed := slices.Contains(fake.calls, "DELETE "+path); removed != ours {
			t.Errorf("made for it: %t, removed: %t: %q", ours, removed, fake.calls)
		}
	}
}

// An engine that does not see this host's files gets none.
func TestRemoteEngineMountsNothing(t *testing.T) {
	s := spec(t)
	f := &facts{at: address{"tcp", "127.0.0.1:1"}, api: "1.41"}
	d := New(Options{})
	if p, err := d.newPlan(s, [32]byte{}, f); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("%+v, %v", p, err)
	}
	s.Root = sandbox.Root{Dir: s.Root.Dir, Image: &sandbox.Image{Digest: "sha256:" + strings.Repeat("a", 64)}}
	p, err := d.newPlan(s, [32]byte{}, f)
	if err != nil {
		t.Fatal(err)
	}
	p.close()
}

// Worlds that differ in what is mounted share one image of the engine's.
func TestMostFixturesShareAnImage(t *testing.T) {
	f := &facts{at: address{"tcp", "127.0.0.1:1"}, api: "1.41"}
	name := func(change func(*sandbox.Spec)) string {
		s := spec(t)
		change(s)
		p := &plan{spec: s}
		if err := p.planRoot(f); err != nil {
			t.Fatal(err)
		}
		defer p.close()
		return p.root.name()
	}
	plain := name(func(*sandbox.Spec) {})
	for what, change := range map[string]func(*sandbox.Spec){
		"a mount on a usual place": func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Target: "/mnt", Dir: true}} },
		"a mount below one":        func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Target: "/mnt/input"}} },
		"a mount at home":          func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Target: "/home/user/x"}} },
		"no scratch at home":       func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Target: "/home/user", Dir: true}}; s.Scratch = nil },
	} {
		if got := name(change); got != plain {
			t.Errorf("%s needs an image of its own", what)
		}
	}
	other := name(func(s *sandbox.Spec) {
		if err := os.Symlink("x", filepath.Join(s.Root.Dir.Name(), "link")); err != nil {
			t.Fatal(err)
		}
	})
	if other == plain {
		t.Error("another root has the same image")
	}
}

// Where cgroup v1 counts the buffers of internet sockets apart, and not at all
// without a limit of their own, they have one.
func TestSocketBuffersAreBounded(t *testing.T) {
	for _, tt := range []struct {
		cgroups string
		can     bool
		want    int64
	}{{"1", true, 8 << 20}, {"1", false, 0}, {"2", true, 0}} {
		f := &facts{at: address{"unix", "/"}, api: "1.41", info: info{CgroupVersion: tt.cgroups, KernelMemoryTCP: tt.can, MemoryLimit: true}}
		s := spec(t)
		s.Limits.Memory = 64 << 20
		p, err := New(Options{}).newPlan(s, [32]byte{}, f)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		if got := p.request.HostConfig.KernelMemoryTCP; got != tt.want {
			t.Errorf("%+v: %d bytes", tt, got)
		}
	}
}

// Where they cannot be bounded, the limit does not pass for one that holds.
func TestUnboundedSocketBuffersAreSaid(t *testing.T) {
	for _, tt := range []struct {
		at      address
		cgroups string
		runtime string
		want    sandbox.Enforcement
	}{
		{address{"tcp", "engine.example:2376"}, "1", "", sandbox.Emulated},
		{address{"tcp", "engine.example:2376"}, "1", "kata", sandbox.Emulated},
		{address{"tcp", "engine.example:2376"}, "1", "runsc", sandbox.Enforced}, // its buffers are its memory
		{address{"tcp", "engine.example:2376"}, "2", "", sandbox.Enforced},
		{address{"unix", "/"}, "2", "", sandbox.Enforced},
	} {
		f := &facts{at: tt.at, api: "1.41", info: info{CgroupVersion: tt.cgroups, MemoryLimit: true, SwapLimit: true}}
		c := f.limits(tt.runtime)[sandbox.LimitMemory]
		if c.Enforcement != tt.want || (c.Enforcement == sandbox.Emulated) != (c.Remedy != "") {
			t.Errorf("%v, cgroup v%s: %+v", tt.at, tt.cgroups, c)
		}
	}
}

// Podman is asked for what it knows: no owner of a tmpfs, no number of files in
// it, no filter as text.
func TestPodmanIsAskedForWhatItKnows(t *testing.T) {
	f := &facts{at: address{"unix", "/"}, api: "1.41", podman: true}
	s := spec(t)
	p, err := New(Options{}).newPlan(s, [32]byte{}, f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	h := p.request.HostConfig
	for target, options := range h.Tmpfs {
		for _, unknown := range []string{"uid=", "gid=", "nr_inodes="} {
			if strings.Contains(options, unknown) {
				t.Errorf("%s: %s", target, options)
			}
		}
	}
	if !slices.ContainsFunc(p.request.Env, func(kv string) bool { return kv == agent.OwnVariable+`=["/home/user"]` }) {
		t.Errorf("the agent is not told whose home is: %q", p.request.Env)
	}
	if len(h.SecurityOpt) != 1 {
		t.Errorf("%q", h.SecurityOpt)
	}
	for _, name := range []string{"/etc/passwd", "/etc/hosts"} {
		if !slices.ContainsFunc(h.Mounts, func(m mount) bool { return m.Target == name && m.ReadOnly }) {
			t.Errorf("%s would be Podman's own", name)
		}
	}
	if f.limits("")[sandbox.LimitInodes].Enforcement != sandbox.Off {
		t.Error("a number of files is said to be held")
	}
	s.Mounts = []sandbox.Mount{{Source: open(t, t.TempDir()), Target: "/mnt/a,b", Dir: true}}
	s.StateDir = t.TempDir()
	if _, err := New(Options{}).newPlan(s, [32]byte{}, f); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a comma: %v", err)
	}
}

// Files that tell a name are shown over those of the root and the engine, once each. A runtime
// with a kernel of its own, or an engine elsewhere, is given none.
func TestNames(t *testing.T) {
	for _, tt := range []struct {
		at      string
		podman  bool
		runtime string
		want    string
	}{
		{at: "unix", want: "/etc/hostname /etc/hosts /etc/machine-id"},
		{at: "unix", podman: true, want: "/etc/hostname /etc/hosts /etc/machine-id"},
		{at: "unix", runtime: "runsc"},
		{at: "tcp"},
	} {
		f := &facts{at: address{tt.at, "/"}, api: "1.41", podman: tt.podman, info: info{Runtimes: map[string]any{"runsc": true}}}
		s := spec(t)
		s.Hostname, s.MachineID = "sandbox-x", strings.Repeat("1", 32)
		dir := s.Root.Dir.Name()
		for _, name := range []string{"etc/hostname", "etc/hosts", "etc/machine-id"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("the root's\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if tt.want == "" {
			s.Root.Binds = nil
		}
		p, err := New(Options{Runtime: tt.runtime}).newPlan(s, [32]byte{}, f)
		if err != nil {
			if tt.want == "" {
				continue // the root is a directory of this host
			}
			t.Fatal(err)
		}
		defer p.close()
		var got []string
		for _, m := range p.spec.Mounts {
			got = append(got, m.Target)
		}
		if strings.Join(got, " ") != tt.want || p.request.Hostname != s.Hostname {
			t.Errorf("%+v: %q, called %s", tt, got, p.request.Hostname)
		}
		seen := map[string]bool{}
		for _, m := range p.request.HostConfig.Mounts {
			if seen[m.Target] {
				t.Errorf("%+v: %s twice", tt, m.Target)
			}
			seen[m.Target] = true
		}
	}
}
