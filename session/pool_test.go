// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// preparer is a stub that makes sandboxes ahead.
type preparer struct {
	stub

	mu    sync.Mutex
	fails error
	made  map[string]*preparedStub
	as    func(*preparedStub) sandbox.Prepared // what is given away; nil: itself
	begun chan struct{}                        // gets one for each that is made, or could not be
}

func (d *preparer) Prepare(_ context.Context, s *sandbox.Spec) (sandbox.Prepared, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.begun <- struct{}{} }()
	if d.fails != nil {
		return nil, d.fails
	}
	p := &preparedStub{d: d, spec: s, ended: make(chan struct{})}
	d.made[s.ID] = p
	if d.as != nil {
		return d.as(p), nil
	}
	return p, nil
}

// preparedStub is a sandbox that was made ahead.
type preparedStub struct {
	d         *preparer
	spec      *sandbox.Spec
	ran       int
	exec      *sandbox.Exec
	code      string
	destroyed bool
	ended     chan struct{}
}

func (p *preparedStub) ID() string             { return p.spec.ID }
func (p *preparedStub) Ended() <-chan struct{} { return p.ended }

func (p *preparedStub) Usage(context.Context) (sandbox.Usage, error) {
	mib := int64(1 << 20)
	return sandbox.Usage{Memory: &mib}, nil
}

func (p *preparedStub) Run(_ context.Context, x *sandbox.Exec) (*sandbox.Result, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.ran++
	p.exec = x
	for _, m := range p.spec.Mounts {
		if m.Target == x.Argv[len(x.Argv)-1] {
			code, err := io.ReadAll(io.NewSectionReader(m.Source, 0, 1<<20))
			if err != nil {
				return nil, err
			}
			p.code = string(code)
		}
	}
	if x.Started != nil {
		x.Started()
	}
	return exited(0), nil
}

func (p *preparedStub) Destroy(context.Context) error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.destroyed = true
	return nil
}

// pooled is a session with a pool of n for calls like one.
func pooled(t *testing.T, n int, change func(*PoolOptions)) (*bench, *preparer, *Pool) {
	t.Helper()
	d := &preparer{made: map[string]*preparedStub{}, begun: make(chan struct{}, 100)}
	b := newBench(t, &d.stub, func(o *Options) {
		o.Drivers["gvisor"] = d
	})
	o := PoolOptions{Like: *like(nil), Ready: n}
	if change != nil {
		change(&o)
	}
	p, err := b.Keep(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for id, m := range d.made {
			if !m.destroyed || m.ran > 1 {
				t.Errorf("%s ran %d times and is destroyed: %v", id, m.ran, m.destroyed)
			}
		}
		b.clean(t)
	})
	for range n {
		<-d.begun
	}
	waiting(t, p, n)
	return b, d, p
}

// waiting waits until so many wait.
func waiting(t *testing.T, p *Pool, n int) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		now := p.State()
		if now.Waiting == n {
			return
		}
		select {
		case <-end:
			t.Fatalf("%+v, want %d waiting", now, n)
		case <-now.Grown:
		}
	}
}

// like is a call that a pool can be for.
func like(change func(*Call)) *Call {
	c := &Call{Frontend: "test"}
	c.Argv, c.Operator, c.Actor = []string{"prog"}, true, "tester"
	if change != nil {
		change(c)
	}
	return c
}

func TestPool(t *testing.T) {
	b, d, p := pooled(t, 2, nil)
	seen := map[string]bool{}
	for i := range 5 {
		res, err := b.Do(t.Context(), like(func(c *Call) {
			c.Argv, c.Env = []string{"other", "words"}, map[string]string{"N": string(rune('0' + i))}
		}), IO{Stdin: strings.NewReader("in")})
		if err != nil || res.Status != sandbox.StatusSuccess || d.stub.ran != 0 {
			t.Fatal(res, err, d.stub.ran)
		}
		id := b.last(t).Call.Sandbox
		d.mu.Lock()
		m := d.made[id]
		d.mu.Unlock()
		if m == nil || seen[id] {
			t.Fatalf("the record says %q, made were %d", id, len(d.made))
		}
		seen[id] = true
		if got := strings.Join(m.exec.Argv, " "); got != "other words" || m.exec.Stdin == nil || !strings.Contains(strings.Join(m.exec.Env, " "), "N="+string(rune('0'+i))) {
			t.Errorf("it ran %q, %q", got, m.exec.Env)
		}
		waiting(t, p, 2)
	}
	if s := p.State(); s.Taken != 5 || s.Missed != 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
}

// What differs in anything that decides how a sandbox is made gets its own.
func TestPoolIsForOneShape(t *testing.T) {
	python := func(c *Call) { c.Argv, c.Source = nil, &Source{Language: "python"} }
	b, d, p := pooled(t, 1, nil)
	code, err := b.Keep(t.Context(), PoolOptions{Like: *like(python), Ready: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer code.Close()
	for name, change := range map[string]func(*Call){
		"memory":           limited(func(l *sandbox.Limits) { l.Memory = 64 << 20 }, sandbox.LimitMemory), // the stub is no Tightener
		"open files":       limited(func(l *sandbox.Limits) { l.OpenFiles = 7 }, sandbox.LimitOpenFiles),
		"disk":             limited(func(l *sandbox.Limits) { l.Disk = 1 << 20 }, sandbox.LimitDisk),
		"processes":        limited(func(l *sandbox.Limits) { l.Processes = 7 }, sandbox.LimitProcesses),
		"somebody else":    func(c *Call) { c.Actor = "other" },
		"another frontend": func(c *Call) { c.Frontend = "other" },
		"a writable place": func(c *Call) { c.Writable = []string{"/home/user", "/tmp", "/more"} },
		"best effort":      func(c *Call) { c.BestEffort = true },
		"hidden paths": func(c *Call) {
			c.Mounts, c.Deny = []policy.MountWish{{Source: tree(t), Target: "/data"}}, []string{"*.pem"}
		},
		"a mount":        func(c *Call) { c.Mounts = []policy.MountWish{{Source: tree(t), Target: "/data"}} },
		"another tree":   func(c *Call) { c.Rootfs = tree(t) },
		"shell code":     func(c *Call) { c.Argv, c.Source = nil, &Source{Language: "sh"} },
		"code elsewhere": func(c *Call) { python(c); c.Cwd = "/tmp" },
	} {
		t.Run(name, func(t *testing.T) {
			before := d.stub.ran
			taken := p.State().Taken + code.State().Taken
			if res, err := b.Do(t.Context(), like(change), IO{}); err != nil || res.Status == sandbox.StatusError {
				t.Fatal(res, err)
			}
			if d.stub.ran != before+1 || p.State().Taken+code.State().Taken != taken {
				t.Error("it ran in a sandbox that was made for others")
			}
		})
	}
	if p.State().Missed+code.State().Missed > 0 {
		t.Error("a call found its pool empty")
	}
	// What comes late makes no difference.
	for name, change := range map[string]func(*Call){
		"where":          func(c *Call) { c.Cwd = "/tmp" },
		"hooks":          func(c *Call) { c.OnUsage, c.OnNotice = func(sandbox.Usage) {}, func(string) {} },
		"watch":          func(c *Call) { c.Watch = []policy.WatchRule{} },
		"wall":           limited(func(l *sandbox.Limits) { l.Wall = time.Second }, sandbox.LimitWall),
		"the same, said": limited(func(l *sandbox.Limits) { *l = sandbox.DefaultLimits() }, sandbox.LimitMemory),
	} {
		taken := p.State().Taken
		waiting(t, p, 1)
		if _, err := b.Do(t.Context(), like(change), IO{}); err != nil || p.State().Taken != taken+1 {
			t.Errorf("%s: %v, it did not run in a sandbox made ahead", name, err)
		}
	}
}

// Code is written into the file that the waiting sandbox shows.
func TestPoolOfCode(t *testing.T) {
	for language, argv := range map[string]string{"python": "python3 /home/user/main.py", "bash": "bash /home/user/main.bash"} {
		t.Run(language, func(t *testing.T) {
			with := func(code string) func(*Call) {
				return func(c *Call) { c.Argv, c.Source = nil, &Source{Language: language, Code: []byte(code)} }
			}
			b, d, p := pooled(t, 2, func(o *PoolOptions) { with("")(&o.Like) })
			for _, text := range []string{"one\n", "two\n", ""} {
				waiting(t, p, 2)
				if _, err := b.Do(t.Context(), like(with(text)), IO{}); err != nil {
					t.Fatal(err)
				}
				d.mu.Lock()
				m := d.made[b.last(t).Call.Sandbox]
				if m == nil || m.code != text || strings.Join(m.exec.Argv, " ") != argv {
					t.Errorf("%+v, want %q", m, text)
				}
				d.mu.Unlock()
			}
		})
	}
}

func TestPoolRefuses(t *testing.T) {
	d := &preparer{made: map[string]*preparedStub{}, begun: make(chan struct{}, 100)}
	b := newBench(t, &d.stub, func(o *Options) { o.Drivers["gvisor"], o.Drivers["process"] = d, &d.stub })
	for _, v := range []struct {
		want   string
		kind   error
		change func(*PoolOptions)
	}{
		{"bounds", sandbox.ErrInvalid, func(o *PoolOptions) { o.Ready = 129 }},
		{"bounds", sandbox.ErrInvalid, func(o *PoolOptions) { o.Age = time.Millisecond }},
		{"process makes no sandboxes ahead", sandbox.ErrUnsupported, func(o *PoolOptions) { o.Like.Isolation = "process" }},
		{"files of the host's", sandbox.ErrUnsupported, func(o *PoolOptions) { o.Like.Rootfs = tree(t) }},
		{"files of the host's", sandbox.ErrUnsupported, func(o *PoolOptions) { o.Like.Mounts = []policy.MountWish{{Source: tree(t), Target: "/data"}} }},
		{"in a file of the host's", sandbox.ErrUnsupported, func(o *PoolOptions) { o.Like.Image = "oci:" + tree(t) }},
		{"terminal", sandbox.ErrUnsupported, func(o *PoolOptions) { o.Like.TTY = &sandbox.Terminal{} }},
		{"to take out", sandbox.ErrUnsupported, func(o *PoolOptions) {
			o.Like.Collect = []policy.CollectWish{{Pattern: "*", Dest: t.TempDir()}}
		}},
	} {
		o := PoolOptions{Like: *like(nil)}
		v.change(&o)
		p, err := b.Keep(t.Context(), o)
		if err == nil {
			p.Close()
		}
		if !errors.Is(err, v.kind) || !strings.Contains(err.Error(), v.want) {
			t.Errorf("want %q: %v", v.want, err)
		}
	}
	if len(d.made) > 0 {
		t.Errorf("%d were made", len(d.made))
	}
	b.clean(t)
}

// What has died while it waited is not used.
func TestPoolTakesNoDeadSandbox(t *testing.T) {
	b, d, p := pooled(t, 1, nil)
	var m *preparedStub
	p.warm.Take(func(_ struct{}, one *made) bool { m = one.box.(asleep).Prepared.(*preparedStub); return false })
	close(m.ended)
	if _, err := b.Do(t.Context(), like(nil), IO{}); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.ran > 0 {
		t.Error("it was used")
	}
}

// Where none can be made calls go on, and the pool says why.
func TestPoolThatCannotFill(t *testing.T) {
	b, d, p := pooled(t, 1, nil)
	d.mu.Lock()
	d.fails = sandbox.Errorf(sandbox.ErrUnavailable, "start sandbox", "no more")
	d.mu.Unlock()
	for range 2 {
		if res, err := b.Do(t.Context(), like(nil), IO{}); err != nil || res.Status != sandbox.StatusSuccess {
			t.Fatal(res, err)
		}
	}
	<-d.begun
	for end := time.After(time.Minute); p.State().Err == nil; {
		select {
		case <-end:
			t.Fatal("it does not say why")
		case <-time.After(time.Millisecond):
		}
	}
	if s := p.State(); s.Taken != 1 || s.Missed != 1 || d.stub.ran != 1 {
		t.Errorf("%+v, and %d without", s, d.stub.ran)
	}
}

func TestPoolIsBoundedByMemory(t *testing.T) {
	_, d, p := pooled(t, 2, func(o *PoolOptions) { o.Ready, o.Memory = 8, 2<<20 })
	select {
	case <-d.begun:
		t.Errorf("more than two of 1 MiB: %+v", p.State())
	default:
	}
}

// A pool changes nothing about what may be asked for.
func TestPoolAsksThePolicy(t *testing.T) {
	b, _, p := pooled(t, 1, nil)
	res, err := b.Do(t.Context(), like(func(c *Call) { c.Argv = []string{"a\x00b"} }), IO{})
	if !errors.Is(err, sandbox.ErrInvalid) || res != nil || p.State().Taken != 0 {
		t.Error(res, err, p.State())
	}
}

// tightener is a sandbox that takes tighter limits.
type tightener struct {
	*preparedStub
	took  []sandbox.Limits
	fails error
}

func (p *tightener) Tighten(l sandbox.Limits) error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.took = append(p.took, l)
	return p.fails
}

// A call gets a sandbox that was made ahead with its own limits in force, or one
// of its own: never one with those of the pool.
func TestPoolTightens(t *testing.T) {
	var given []*tightener
	refusal := error(nil)
	d := &preparer{made: map[string]*preparedStub{}, begun: make(chan struct{}, 100)}
	d.as = func(p *preparedStub) sandbox.Prepared {
		given = append(given, &tightener{preparedStub: p, fails: refusal})
		return given[len(given)-1]
	}
	b := newBench(t, &d.stub, func(o *Options) { o.Drivers["gvisor"] = d })
	p, err := b.Keep(t.Context(), PoolOptions{Like: *like(limited(func(l *sandbox.Limits) { l.Memory = 128 << 20 }, sandbox.LimitMemory)), Ready: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	do := func(memory int64) (pooled bool) {
		t.Helper()
		waiting(t, p, 1)
		taken, own := p.State().Taken, d.stub.ran
		res, err := b.Do(t.Context(), like(limited(func(l *sandbox.Limits) { l.Memory = memory }, sandbox.LimitMemory)), IO{})
		if err != nil || res.Status != sandbox.StatusSuccess {
			t.Fatal(res, err)
		}
		if got, want := b.last(t).Call.Limits["memory"], fmt.Sprint(memory); got != want {
			t.Errorf("the record says %q, want %q", got, want)
		}
		return p.State().Taken > taken && d.stub.ran == own
	}
	last := func() *tightener {
		d.mu.Lock()
		defer d.mu.Unlock()
		for i := len(given) - 1; i >= 0; i-- {
			if given[i].ran > 0 {
				return given[i]
			}
		}
		return nil
	}
	if !do(128<<20) || len(last().took) != 0 {
		t.Errorf("its own limits: %+v", last())
	}
	if !do(64<<20) || len(last().took) != 1 || last().took[0].Memory != 64<<20 {
		t.Errorf("tighter ones: %+v", last())
	}
	if do(256 << 20) {
		t.Error("looser ones: it ran in a sandbox that was made ahead")
	}
	if do(sandbox.LeastMemory - 1) {
		t.Error("what no level takes: it ran in a sandbox that was made ahead")
	}
	d.mu.Lock()
	refusal = sandbox.ErrUnsupported
	for _, g := range given {
		g.fails = refusal
	}
	d.mu.Unlock()
	if do(64 << 20) {
		t.Error("it ran in a sandbox that did not take its limits")
	}
	if taken := p.State().Taken; do(64<<20) || p.State().Taken != taken {
		t.Error("another one was wasted")
	}
}
