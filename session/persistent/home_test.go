// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// handClock stands still until a test moves it.
type handClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[int]*handTimer
	n      int
}

type handTimer struct {
	at time.Time
	f  func()
}

func newHandClock() *handClock {
	return &handClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), timers: map[int]*handTimer{}}
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	id := c.n
	c.timers[id] = &handTimer{c.now.Add(d), f}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.timers[id]
		delete(c.timers, id)
		return ok
	}
}

// move lets d pass, and returns when everything that was due then is done.
func (c *handClock) move(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []func()
	for _, id := range slices.Sorted(maps.Keys(c.timers)) {
		if t := c.timers[id]; !t.at.After(c.now) {
			due = append(due, t.f)
			delete(c.timers, id)
		}
	}
	c.mu.Unlock()
	var wait sync.WaitGroup
	for _, f := range due {
		wait.Go(f)
	}
	wait.Wait()
}

// jump sets the clock by d, as an operator would. What is timed goes on as if it had not.
func (c *handClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for _, t := range c.timers {
		t.at = t.at.Add(d)
	}
}

// home is a state directory with what stands in it.
type home struct {
	*Sandboxes
	clock  *handClock
	driver sandbox.Driver
	log    *audit.Log
	dir    *store.Dir
	reg    *registry.DB
	key    *Key
	keys   *Keys
}

func newHome(t *testing.T, change func(*SandboxesOptions)) *home {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for the fake level")
	}
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	h := &home{clock: newHandClock(), dir: dir, driver: &faketest.Driver{Agent: true}}
	if h.log, err = audit.Open(t.Context(), audit.Options{Dir: dir.Path()}); err != nil {
		t.Fatal(err)
	}
	if h.reg, err = registry.Open(t.Context(), dir.Path()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.reg.Close(); h.log.Close(); dir.Close() })
	if h.keys, err = OpenKeys(h.reg, ""); err != nil {
		t.Fatal(err)
	}
	h.key = h.newKey(t, "tester")
	h.open(t, change)
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if d, ok := h.driver.(*faketest.Driver); ok && d.Running() != 0 {
			t.Errorf("%d sandboxes are left", d.Running())
		}
		left, _ := os.ReadDir(dir.Path() + "/run")
		for _, e := range left {
			if !strings.HasPrefix(e.Name(), ".") {
				t.Errorf("left in the run directory: %s", e.Name())
			}
		}
	})
	return h
}

// open opens the sandboxes of h, again when they were closed.
func (h *home) open(t testing.TB, change func(*SandboxesOptions)) {
	t.Helper()
	o := SandboxesOptions{
		Drivers: map[string]sandbox.Driver{"gvisor": h.driver}, Journal: charged{h.log, t}, State: session.DirState(h.dir), Registry: h.reg, Clock: h.clock,
		Notice: func(s string) { t.Log("notice:", s) },
	}
	if change != nil {
		change(&o)
	}
	b, err := OpenSandboxes(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	h.Sandboxes = b
}

func (h *home) newKey(t testing.TB, name string) *Key {
	t.Helper()
	_, token, err := h.keys.Create(t.Context(), name, "", "")
	if err != nil {
		t.Fatal(err)
	}
	k, err := h.keys.Authenticate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (h *home) create(t testing.TB, c Create) *Sandbox {
	t.Helper()
	s, err := h.Create(t.Context(), h.key, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sh runs a shell command in a sandbox.
func (h *home) sh(t testing.TB, id, line string) string {
	t.Helper()
	c := &session.Call{}
	c.Argv = []string{"sh", "-c", line}
	res, err := h.Handle(h.key, id).Exec(t.Context(), c, session.IO{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != sandbox.StatusSuccess {
		t.Fatalf("%s: %s %s %q %q", line, res.Status, res.Reason, res.Stdout, res.Stderr)
	}
	return string(res.Stdout)
}

// charged is a record in which whatever a key does is charged to it.
type charged struct {
	*audit.Log
	t testing.TB
}

func (c charged) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	c.check(in.Actor, in.Account, in.Kind)
	return c.Log.Begin(ctx, in)
}

func (c charged) Refuse(ctx context.Context, in audit.Intent, out audit.Outcome) error {
	c.check(in.Actor, in.Account, in.Kind)
	return c.Log.Refuse(ctx, in, out)
}

func (c charged) Connections(ctx context.Context, list []audit.Connection) error {
	for _, n := range list {
		c.check(n.Actor, n.Account, audit.KindConnection)
	}
	return c.Log.Connections(ctx, list)
}

func (c charged) check(actor, account, kind string) {
	if strings.HasPrefix(actor, "key:") && account == "" {
		c.t.Errorf("%s of %s is charged to nobody", kind, actor)
	}
}

// fileWith writes a file with a text and gives its path.
func fileWith(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}
