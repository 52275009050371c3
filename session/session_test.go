// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session/environment"
)

func TestMain(m *testing.M) {
	faketest.Init()
	goleak.VerifyTestMain(m)
}

// stub is a level whose program is a function of the test.
type stub struct {
	caps func(*sandbox.Capabilities)
	prog func(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error)
	ran  int
	spec *sandbox.Spec
}

func (d *stub) Name() string { return "gvisor" }

func (d *stub) Probe(context.Context) (sandbox.Capabilities, error) {
	c := sandbox.Capabilities{Limits: map[sandbox.LimitName]sandbox.Clause{}, Terminal: true, CopyOnWrite: true, ReadWrite: true, Masks: true}
	for _, n := range sandbox.LimitNames() {
		c.Limits[n] = sandbox.Clause{Enforcement: sandbox.Enforced}
	}
	if d.caps != nil {
		d.caps(&c)
	}
	return c, nil
}

func (d *stub) Start(context.Context, *sandbox.Spec) (sandbox.Instance, error) {
	return nil, sandbox.ErrUnsupported
}

func (d *stub) Adopt(context.Context, *sandbox.Spec) (*sandbox.Adopted, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "adopt sandbox", "it dies with its owner")
}

func (d *stub) Run(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
	d.ran++
	d.spec = s
	if x.Started != nil {
		x.Started()
	}
	if d.prog == nil {
		return exited(0), nil
	}
	return d.prog(ctx, s, x)
}

func exited(code int) *sandbox.Result {
	r := &sandbox.Result{Status: sandbox.StatusSuccess, ExitCode: &code}
	if code != 0 {
		r.Status = sandbox.StatusError
	}
	return r
}

// untilKilled is a program that runs until it is ended.
func untilKilled(ctx context.Context, _ *sandbox.Spec, _ *sandbox.Exec) (*sandbox.Result, error) {
	<-ctx.Done()
	return &sandbox.Result{Status: sandbox.StatusError, Signal: "SIGKILL"}, nil
}

// bench is a session on a stub, with a real record and a real state directory.
type bench struct {
	*Session
	log   *audit.Log
	state *store.Dir
}

func newBench(t *testing.T, d *stub, change func(*Options)) *bench {
	t.Helper()
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir.Path()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close(); dir.Close() })
	p, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Drivers: map[string]sandbox.Driver{"gvisor": d}, Policy: p, Journal: log, State: DirState(dir)}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{s, log, dir}
}

// tree is the smallest root filesystem.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"proc", "sys", "dev/shm", "tmp", "home/user", "root", "workspace", "data", "more", "secret"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// call runs argv on an empty tree, which costs nothing to build.
func call(t *testing.T, change func(*Call)) *Call {
	c := &Call{Frontend: "test"}
	c.Argv, c.Operator, c.Actor, c.Rootfs = []string{"prog"}, true, "tester", tree(t)
	if change != nil {
		change(c)
	}
	return c
}

func limited(set func(*sandbox.Limits), names ...sandbox.LimitName) func(*Call) {
	return func(c *Call) {
		set(&c.Limits)
		c.Limits.Explicit = map[sandbox.LimitName]bool{}
		for _, n := range names {
			c.Limits.Explicit[n] = true
		}
	}
}

// last is the newest record.
func (b *bench) last(t *testing.T) audit.Record {
	t.Helper()
	for r, err := range b.log.Query(t.Context(), audit.Filter{Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Fatal("nothing was recorded")
	return audit.Record{}
}

// clean fails when a run left its directory.
func (b *bench) clean(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(b.state.Path(), "run", "sbx_*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRunsAndRecords(t *testing.T) {
	d := &stub{prog: func(_ context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		if info, err := os.Stat(s.StateDir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("state directory: %v, %v", info, err)
		}
		io.WriteString(x.Stdout, "out")
		io.WriteString(x.Stderr, "err")
		return exited(3), nil
	}}
	b := newBench(t, d, nil)
	res, err := b.Do(t.Context(), call(t, nil), IO{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != sandbox.StatusError || *res.ExitCode != 3 || string(res.Stdout) != "out" || string(res.Stderr) != "err" {
		t.Errorf("result %+v", res)
	}
	if res.Posture.Isolation != "gvisor" || res.Posture.Network != "none" || res.Posture.Limits[sandbox.LimitMemory] != sandbox.Enforced {
		t.Errorf("posture %+v", res.Posture)
	}
	r := b.last(t)
	if r.Status != audit.Allowed || r.Call.Actor != "tester" || r.Ending.Result.Status != sandbox.StatusError || r.Ending.Stdout.Size != 3 {
		t.Errorf("record %+v", r)
	}
	b.clean(t)
}

func TestWhatEndedIt(t *testing.T) {
	sample := func(u ...sandbox.Usage) func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) {
		return func(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
			for _, one := range u {
				x.Sample(one)
			}
			return untilKilled(ctx, s, x)
		}
	}
	cpu := func(at, used time.Duration) sandbox.Usage {
		return sandbox.Usage{At: time.Unix(100, 0).Add(at), CPU: &used}
	}
	for name, tc := range map[string]struct {
		prog     func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error)
		call     func(*Call)
		status   sandbox.Status
		resource sandbox.LimitName
		reason   string
	}{
		"wall": {untilKilled, limited(func(l *sandbox.Limits) { l.Wall = 30 * time.Millisecond }, sandbox.LimitWall),
			sandbox.StatusTimeout, sandbox.LimitWall, "wall time of 30ms is over"},
		"cpu time": {sample(cpu(0, time.Second), cpu(time.Second, 2*time.Second)), limited(func(l *sandbox.Limits) { l.CPUTime = 2 * time.Second }, sandbox.LimitCPUTime),
			sandbox.StatusResourceExceeded, sandbox.LimitCPUTime, "CPU time of 2s is used up"},
		"watch": {sample(cpu(0, 0), cpu(time.Second, time.Second)), func(c *Call) {
			c.Watch = []policy.WatchRule{{When: "cpu_percent > 80", Metric: "cpu_percent", Value: 80, Do: policy.WatchKill, From: "p.yaml:3"}}
		}, sandbox.StatusResourceExceeded, sandbox.LimitCPUs, "watch rule: cpu_percent > 80"},
		"output": {func(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
			x.Stdout.Write(make([]byte, 11))
			return untilKilled(ctx, s, x)
		}, limited(func(l *sandbox.Limits) { l.Output, l.OutputKill = 10, true }, sandbox.LimitOutput, "on_output"),
			sandbox.StatusResourceExceeded, sandbox.LimitOutput, "output limit of 10 bytes"},
		"the level's own": {func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) {
			return &sandbox.Result{Status: sandbox.StatusResourceExceeded, Resource: sandbox.LimitMemory, Signal: "SIGKILL"}, nil
		}, limited(func(l *sandbox.Limits) { l.Memory = 64 << 20 }, sandbox.LimitMemory), sandbox.StatusResourceExceeded, sandbox.LimitMemory, "memory limit of 64 MiB reached"},
		"its own end, however late": {func(ctx context.Context, _ *sandbox.Spec, _ *sandbox.Exec) (*sandbox.Result, error) {
			<-ctx.Done()
			return exited(0), nil
		}, limited(func(l *sandbox.Limits) { l.Wall = 20 * time.Millisecond }, sandbox.LimitWall), sandbox.StatusSuccess, "", ""},
		"its own kill": {func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) {
			return &sandbox.Result{Status: sandbox.StatusError, Signal: "SIGKILL"}, nil
		}, nil, sandbox.StatusError, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, &stub{prog: tc.prog}, nil)
			res, err := b.Do(t.Context(), call(t, tc.call), IO{})
			if err != nil {
				t.Fatal(err)
			}
			if res.Status != tc.status || res.Resource != tc.resource || !strings.HasPrefix(res.Reason, tc.reason) || tc.reason == "" && res.Reason != "" {
				t.Errorf("got %s %q %q, want %s %q %q", res.Status, res.Resource, res.Reason, tc.status, tc.resource, tc.reason)
			}
			b.clean(t)
		})
	}
}

func TestCallerEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := &stub{prog: func(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		cancel()
		return untilKilled(ctx, s, x)
	}}
	b := newBench(t, d, nil)
	res, err := b.Do(ctx, call(t, nil), IO{})
	if err != nil || res.Status != sandbox.StatusError || res.Reason != "ended by the caller" {
		t.Errorf("got %+v, %v", res, err)
	}
	if r := b.last(t); r.Status != audit.Allowed || r.Ending == nil {
		t.Errorf("a cancelled call has no end in the record: %+v", r)
	}
	b.clean(t)
}

// What is refused says how its own command runs with less.
func TestLessIsOfTheCommand(t *testing.T) {
	run, step := &Call{}, &Call{Step: &environment.Step{}}
	if got := run.withLess(); !strings.HasSuffix(got, "caisson run --best-effort") {
		t.Error(got)
	}
	if got := step.withLess(); !strings.HasSuffix(got, "caisson template build --best-effort") {
		t.Error(got)
	}
}

func TestUnenforceable(t *testing.T) {
	off := func(c *sandbox.Capabilities) {
		c.Limits[sandbox.LimitMemory] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "no delegated cgroup", Remedy: "loginctl something"}
		delete(c.Limits, sandbox.LimitIO) // what a level is silent about it does not hold
	}
	explicit := limited(func(l *sandbox.Limits) { l.Memory = 64 << 20 }, sandbox.LimitMemory)
	for name, tc := range map[string]struct {
		call func(*Call)
		op   string // of the refusal; empty runs
	}{
		"a default":         {nil, ""},
		"written down":      {explicit, "limit memory"},
		"best effort":       {func(c *Call) { explicit(c); c.BestEffort = true }, ""},
		"silent level":      {limited(func(l *sandbox.Limits) { l.IO = 1 << 20 }, sandbox.LimitIO), "limit io"},
		"root":              {func(c *Call) { c.Root = true }, "--root"},
		"root, best effort": {func(c *Call) { c.Root, c.BestEffort = true, true }, "--root"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &stub{caps: off}
			b := newBench(t, d, nil)
			var notices []string
			c := call(t, tc.call)
			c.OnNotice = func(s string) { notices = append(notices, s) }
			c.OnLacking = func(l Lacking) { notices = append(notices, l.String()) }
			res, err := b.Do(t.Context(), c, IO{})
			if tc.op != "" {
				var e *sandbox.Error
				if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrUnsupported) || e.Op != tc.op || e.Hint == "" {
					t.Errorf("got %v, want a refusal of %s with a hint", err, tc.op)
				}
				if d.ran != 0 {
					t.Error("it ran all the same")
				}
				if r := b.last(t); r.Status != audit.Refused {
					t.Errorf("recorded as %s", r.Status)
				}
				return
			}
			if d.spec.Limits.Memory != 0 || d.spec.Limits.Explicit[sandbox.LimitMemory] {
				t.Errorf("the driver is asked for what it cannot do: %+v", d.spec.Limits)
			}
			if err != nil || res.Posture.Limits[sandbox.LimitMemory] != sandbox.Off || len(notices) != 1 || !strings.Contains(notices[0], "no delegated cgroup") {
				t.Errorf("got %v, %v, notices %q", res, err, notices)
			}
		})
	}
}

// What several limits lack is told once, with the reason that they have in common; what
// was asked for is not among them.
func TestLacking(t *testing.T) {
	d := &stub{caps: func(c *sandbox.Capabilities) {
		c.Limits[sandbox.LimitCPUs] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "no groups"}
		c.Limits[sandbox.LimitMemory] = sandbox.Clause{Enforcement: sandbox.Emulated, Detail: "looked at now and then; no groups"}
		c.Limits[sandbox.LimitTmp] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "no tmpfs"}
	}}
	b := newBench(t, d, nil)
	var notices, lacking []string
	for _, change := range []func(*Call){nil, func(c *Call) {
		limited(func(l *sandbox.Limits) { l.Memory = 64 << 20 }, sandbox.LimitMemory)(c)
		c.BestEffort = true
	}} {
		c := call(t, change)
		c.OnNotice = func(s string) { notices = append(notices, s) }
		c.OnLacking = func(l Lacking) { lacking = append(lacking, l.String()) }
		if _, err := b.Do(t.Context(), c, IO{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{
		"of the default limits cpus is off, memory is emulated, tmp is off: no groups; no tmpfs",
		"of the default limits cpus is off, tmp is off: no groups; no tmpfs",
	}; !slices.Equal(lacking, want) {
		t.Errorf("%q", lacking)
	}
	if want := []string{"limit memory is emulated: looked at now and then; no groups"}; !slices.Equal(notices, want) {
		t.Errorf("%q", notices)
	}
}

func TestDenied(t *testing.T) {
	home := t.TempDir()
	os.Mkdir(filepath.Join(home, ".ssh"), 0o700)
	t.Setenv("HOME", home)
	for name, change := range map[string]func(*Call){
		"by policy":     func(c *Call) { c.Operator = false },
		"system folder": func(c *Call) { c.Mounts = []policy.MountWish{{Source: "/etc", Target: "/data"}} },
		"keys":          func(c *Call) { c.Mounts = []policy.MountWish{{Source: filepath.Join(home, ".ssh"), Target: "/data"}} },
		"link to keys": func(c *Call) {
			link := filepath.Join(t.TempDir(), "link")
			os.Symlink(filepath.Join(home, ".ssh"), link)
			c.Mounts = []policy.MountWish{{Source: link, Target: "/data"}}
		},
		"denied mount": func(c *Call) {
			c.Mounts = []policy.MountWish{{Source: t.TempDir(), Target: "/secret"}}
			c.Deny = []string{"/secret"}
		},
		"a secret as the program": func(c *Call) {
			c.File = filepath.Join(home, ".ssh", "id.py")
			os.WriteFile(c.File, []byte("x"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &stub{}
			b := newBench(t, d, nil)
			res, err := b.Do(t.Context(), call(t, change), IO{})
			if err != nil || res.Status != sandbox.StatusDenied || res.Reason == "" || res.Rule == "" || d.ran != 0 {
				t.Fatalf("got %+v, %v, ran %d", res, err, d.ran)
			}
			if r := b.last(t); r.Status != audit.Refused || r.Ending.Result.Rule != res.Rule {
				t.Errorf("record %+v", r)
			}
			b.clean(t)
		})
	}
}

// What cannot be meant is no denial: no other policy would let it through. It leaves a
// record all the same.
func TestCannotBeMeant(t *testing.T) {
	for name, change := range map[string]func(*Call){
		"a network": func(c *Call) { c.Network = []string{"bad host"} },
		"a limit": func(c *Call) {
			c.Limits = sandbox.Limits{Memory: -1, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
		},
		"a pattern":     func(c *Call) { c.Deny = []string{"["} },
		"a level":       func(c *Call) { c.Isolation = "gviser" },
		"a place":       func(c *Call) { c.Writable = []string{"relative"} },
		"two ways":      func(c *Call) { c.Image, c.Rootfs = "python", "/t" },
		"an argument":   func(c *Call) { c.Argv = []string{"a\x00b"} },
		"no such place": func(c *Call) { c.Cwd = "../x" },
	} {
		t.Run(name, func(t *testing.T) {
			d := &stub{}
			b := newBench(t, d, nil)
			res, err := b.Do(t.Context(), call(t, change), IO{})
			if !errors.Is(err, sandbox.ErrInvalid) || errors.Is(err, sandbox.ErrDenied) || sandbox.Hint(err) == "" || res != nil || d.ran != 0 {
				t.Fatalf("got %+v, %v, ran %d", res, err, d.ran)
			}
			if r := b.last(t); r.Status != audit.Refused || r.Ending.Error != err.Error() {
				t.Errorf("record %+v", r)
			}
			b.clean(t)
		})
	}
}

// A file of the host's is its owner's to run, and is opened for no other user.
func TestFileOfSomebodyElse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "main.sh")
	if err := os.WriteFile(file, []byte("true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for operator, want := range map[bool]sandbox.Status{true: sandbox.StatusSuccess, false: sandbox.StatusDenied} {
		d := &stub{}
		b := newBench(t, d, nil)
		res, err := b.Do(t.Context(), &Call{Call: policy.Call{Actor: "a", Operator: operator}, File: file}, IO{})
		if err != nil || res.Status != want || (d.ran != 0) != operator {
			t.Errorf("owner %v: %+v, %v, ran %d", operator, res, err, d.ran)
		}
		if r := b.last(t); !operator && (r.Status != audit.Refused || res.Rule != "built-in: host paths") {
			t.Errorf("record %+v, rule %q", r, res.Rule)
		}
	}
}

// A link beneath a source that the policy names leads nowhere else.
func TestLinkOutOfThePolicy(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(filepath.Join(dir, "in"), 0o755)
	tree := tree(t)
	f, err := policy.Parse(filepath.Join(dir, "p.yaml"), []byte("version: 1\nfiles: {rootfs: "+tree+", mounts: [{source: ., target: /data}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]sandbox.Status{"in": sandbox.StatusSuccess, "out": sandbox.StatusDenied} {
		b := newBench(t, &stub{}, func(o *Options) {
			if o.Policy, err = policy.New(policy.Options{File: f}); err != nil {
				t.Fatal(err)
			}
		})
		res, err := b.Do(t.Context(), call(t, func(c *Call) {
			c.Rootfs = tree
			c.Mounts = []policy.MountWish{{Source: filepath.Join(dir, name), Target: "/more"}}
		}), IO{})
		if err != nil || res.Status != want {
			t.Errorf("%s: got %+v, %v, want %s", name, res, err, want)
		}
	}
}

// brokenJournal refuses some of the records.
type brokenJournal struct {
	audit.Journal
	begin, refuse bool
}

func (j brokenJournal) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	if j.begin {
		return nil, sandbox.Errorf(sandbox.ErrUnavailable, "audit", "the disk is full")
	}
	return j.Journal.Begin(ctx, in)
}

func (j brokenJournal) Refuse(ctx context.Context, in audit.Intent, out audit.Outcome) error {
	if j.refuse {
		return sandbox.Errorf(sandbox.ErrUnavailable, "audit", "the disk is full")
	}
	return j.Journal.Refuse(ctx, in, out)
}

func TestNothingRunsUnrecorded(t *testing.T) {
	d := &stub{}
	b := newBench(t, d, func(o *Options) { o.Journal = brokenJournal{Journal: o.Journal, begin: true} })
	if res, err := b.Do(t.Context(), call(t, nil), IO{}); !errors.Is(err, sandbox.ErrUnavailable) || res != nil || d.ran != 0 {
		t.Errorf("got %v, %v, ran %d", res, err, d.ran)
	}
	b.clean(t)

	b = newBench(t, d, func(o *Options) { o.Journal = brokenJournal{Journal: o.Journal, refuse: true} })
	denied := call(t, func(c *Call) { c.Operator = false })
	if res, err := b.Do(t.Context(), denied, IO{}); !errors.Is(err, sandbox.ErrUnavailable) || res != nil {
		t.Errorf("a refusal that is not recorded: %v, %v", res, err)
	}
}

func TestDriverFails(t *testing.T) {
	want := sandbox.Errorf(sandbox.ErrUnavailable, "start sandbox", "no memory")
	b := newBench(t, &stub{prog: func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) { return nil, want }}, nil)
	if _, err := b.Do(t.Context(), call(t, nil), IO{}); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if r := b.last(t); r.Status != audit.Failed || !strings.Contains(r.Ending.Error, "no memory") {
		t.Errorf("record %+v", r)
	}
	b.clean(t)
}

func TestDriverPanics(t *testing.T) {
	b := newBench(t, &stub{prog: func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) { panic("bug") }}, nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		b.Do(t.Context(), call(t, nil), IO{Stdout: io.Discard, Stderr: io.Discard})
	}()
	b.clean(t)
}

func TestUnknownLevel(t *testing.T) {
	b := newBench(t, &stub{}, nil)
	_, err := b.Do(t.Context(), call(t, func(c *Call) { c.Isolation = "vm" }), IO{})
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(sandbox.Hint(err), "gvisor") {
		t.Errorf("got %v, hint %q", err, sandbox.Hint(err))
	}
}

func TestNewNeedsItsParts(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if _, err := New(Options{Drivers: map[string]sandbox.Driver{"gvisor": &stub{}}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("without a policy: %v", err)
	}
}

// A writer that blocks for ever costs a goroutine, and neither the record nor
// the cleanup.
func TestBlockedWriter(t *testing.T) {
	block := make(chan struct{})
	d := &stub{prog: func(ctx context.Context, _ *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		for {
			if _, err := x.Stdout.Write(make([]byte, chunk)); err != nil {
				return &sandbox.Result{Status: sandbox.StatusError, Signal: "SIGKILL"}, nil
			}
		}
	}}
	b := newBench(t, d, nil)
	c := call(t, limited(func(l *sandbox.Limits) { l.Wall, l.Output = 50*time.Millisecond, 1<<20 }, sandbox.LimitWall))
	res, err := b.Do(t.Context(), c, IO{Stdout: writerFunc(func(p []byte) (int, error) { <-block; return len(p), nil }), Stderr: io.Discard})
	close(block)
	if err != nil || res.Status != sandbox.StatusTimeout {
		t.Errorf("got %+v, %v", res, err)
	}
	if r := b.last(t); r.Ending == nil {
		t.Error("its end was not recorded")
	}
	b.clean(t)
}

func TestReaderGoesAway(t *testing.T) {
	d := &stub{prog: func(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		for {
			if _, err := x.Stdout.Write([]byte("y\n")); err != nil {
				return untilKilled(ctx, s, x)
			}
		}
	}}
	b := newBench(t, d, nil)
	gone := writerFunc(func([]byte) (int, error) { return 0, os.ErrClosed })
	res, err := b.Do(t.Context(), call(t, nil), IO{Stdout: gone, Stderr: io.Discard})
	if err != nil || res.Signal != "SIGPIPE" || res.Status != sandbox.StatusError {
		t.Errorf("got %+v, %v", res, err)
	}
}

// A file that takes no more is no reader that went away: who reads it later would
// take what is there for all there was. The last bytes count, too, which are
// written when the program has ended.
func TestOutputCannotBeWritten(t *testing.T) {
	for name, prog := range map[string]func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error){
		"at the end": func(_ context.Context, _ *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
			x.Stdout.Write([]byte("y\n"))
			return &sandbox.Result{Status: sandbox.StatusSuccess, ExitCode: new(int)}, nil
		},
		"while it runs": func(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
			for {
				if _, err := x.Stdout.Write([]byte("y\n")); err != nil {
					return untilKilled(ctx, s, x)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			b := newBench(t, &stub{prog: prog}, nil)
			res, err := b.Do(t.Context(), call(t, nil), IO{Stdout: full, Stderr: io.Discard})
			if res == nil || err == nil || !strings.Contains(err.Error(), "stdout could not be written: no space left") {
				t.Errorf("got %+v, %v", res, err)
			}
			if e := (*sandbox.Error)(nil); !errors.As(err, &e) || !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("%#v is not what a caller can tell apart", err)
			}
			b.clean(t)
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestStreamsPassInOrder(t *testing.T) {
	var out bytes.Buffer
	var want bytes.Buffer
	d := &stub{prog: func(_ context.Context, _ *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		for i := range 200 {
			p := bytes.Repeat([]byte{byte(i)}, i*i)
			want.Write(p)
			x.Stdout.Write(p)
		}
		return exited(0), nil
	}}
	b := newBench(t, d, nil)
	c := call(t, limited(func(l *sandbox.Limits) { l.Output = 1 << 30 }, sandbox.LimitOutput))
	if _, err := b.Do(t.Context(), c, IO{Stdout: &out, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes arrived of %d", out.Len(), want.Len())
	}
}
