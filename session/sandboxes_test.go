// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
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
		t.Skip("the fake level needs root")
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
		Drivers: map[string]sandbox.Driver{"gvisor": h.driver}, Journal: h.log, State: DirState(h.dir), Registry: h.reg, Clock: h.clock,
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
	c := &Call{}
	c.Argv = []string{"sh", "-c", line}
	res, err := h.Exec(t.Context(), h.key, id, c, IO{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != sandbox.StatusSuccess {
		t.Fatalf("%s: %s %s %q %q", line, res.Status, res.Reason, res.Stdout, res.Stderr)
	}
	return string(res.Stdout)
}

func TestSandboxLives(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{Metadata: map[string]string{"a": "b"}, Env: map[string]string{"TOKEN": "secret-value"}})
	if len(s.ID) != 21 || s.State != registry.Running || s.Ends.Sub(s.Started) != 5*time.Minute {
		t.Errorf("made %+v", s)
	}
	h.sh(t, s.ID, "echo one > ~/file; (sleep 1000 & echo $! > ~/pid)")
	if got := h.sh(t, s.ID, "cat ~/file; kill -0 $(cat ~/pid) && echo $TOKEN $HOME"); got != "one\nsecret-value /home/user\n" {
		t.Errorf("a later command sees %q", got)
	}
	page, err := h.List(t.Context(), h.key, Filter{Metadata: map[string]string{"a": "b"}})
	if err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != s.ID {
		t.Errorf("listed %+v, %v", page, err)
	}
	if err := h.Kill(t.Context(), h.key, s.ID); err != nil {
		t.Fatal(err)
	}
	_, err = h.Get(t.Context(), h.key, s.ID)
	if !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "killed by its owner") {
		t.Errorf("a sandbox that was killed: %v", err)
	}
	if err := h.Kill(t.Context(), h.key, s.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("killed twice: %v", err)
	}
}

func TestAnotherKeysSandboxIsUnknown(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{})
	other := h.newKey(t, "other")
	_, unknown := h.Get(t.Context(), other, "i00000000000000000000")
	tries := map[string]func(id string) error{
		"get":     func(id string) error { _, err := h.Get(t.Context(), other, id); return err },
		"kill":    func(id string) error { return h.Kill(t.Context(), other, id) },
		"extend":  func(id string) error { _, err := h.Extend(t.Context(), other, id, time.Minute); return err },
		"timeout": func(id string) error { _, err := h.SetTimeout(t.Context(), other, id, 0); return err },
		"agent":   func(id string) error { _, _, err := h.Agent(t.Context(), other, id); return err },
		"exec": func(id string) error {
			c := &Call{}
			c.Argv = []string{"true"}
			_, err := h.Exec(t.Context(), other, id, c, IO{})
			return err
		},
	}
	for name, try := range tries {
		err := try(s.ID)
		want := strings.ReplaceAll(unknown.Error(), "i00000000000000000000", s.ID)
		if !errors.Is(err, sandbox.ErrNotFound) || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if page, err := h.List(t.Context(), other, Filter{}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("another key lists %v, %v", page, err)
	}
	h.sh(t, s.ID, "true")
}

func TestExpiry(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{Timeout: time.Minute})
	idle := h.create(t, Create{Timeout: time.Hour, Idle: 10 * time.Second})
	lives := func(id string, want bool) {
		t.Helper()
		if _, err := h.Get(t.Context(), h.key, id); (err == nil) != want {
			t.Errorf("lives: %t, want %t (%v)", err == nil, want, err)
		}
	}
	h.clock.move(9 * time.Second)
	h.sh(t, idle.ID, "true")
	h.clock.move(9 * time.Second) // 9 s since it was used
	lives(idle.ID, true)
	h.clock.move(time.Second)
	lives(idle.ID, false)
	// Extending never shortens, setting may.
	if got, err := h.Extend(t.Context(), h.key, s.ID, 10*time.Second); err != nil || !got.Ends.Equal(s.Ends) {
		t.Errorf("extended by less: %v, %v, want %v", got, err, s.Ends)
	}
	if got, err := h.Extend(t.Context(), h.key, s.ID, time.Minute); err != nil || got.Ends.Sub(h.clock.Now()) != time.Minute {
		t.Errorf("extended: %v, %v", got, err)
	}
	if got, err := h.SetTimeout(t.Context(), h.key, s.ID, 5*time.Second); err != nil || got.Ends.Sub(h.clock.Now()) != 5*time.Second {
		t.Errorf("set: %v, %v", got, err)
	}
	h.clock.move(5*time.Second - 1)
	lives(s.ID, true)
	h.clock.move(1)
	lives(s.ID, false)
	if _, err := h.Get(t.Context(), h.key, s.ID); err == nil || !strings.Contains(err.Error(), "its time of 5s was over") {
		t.Errorf("why: %v", err)
	}
	if len(h.clock.timers) != 0 {
		t.Errorf("%d timers are left", len(h.clock.timers))
	}
	if _, err := h.Create(t.Context(), h.key, Create{Timeout: 25 * time.Hour}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("longer than the profile: %v", err)
	}
}

func TestSandboxesRestart(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{})
	if _, err := OpenSandboxes(t.Context(), h.o); !errors.Is(err, sandbox.ErrConflict) {
		t.Fatalf("a second owner: %v", err)
	}
	token := h.Token(s, "access")
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.open(t, nil)
	if _, err := h.Get(t.Context(), h.key, s.ID); err == nil || !strings.Contains(err.Error(), "caisson was stopped") {
		t.Errorf("after a restart: %v", err)
	}
	if h.Token(s, "access") != token || h.Token(s, "traffic") == token {
		t.Error("tokens do not keep, or are not each their own")
	}
}

func TestSandboxEndsByItself(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{})
	in, leave, err := h.Agent(t.Context(), h.key, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	l, _ := h.find(t.Context(), h.key, s.ID)
	l.in.box.Destroy(t.Context()) // as when its agent is killed
	<-in.Gone
	for {
		events, more := h.Events(h.key, 0)
		if n := len(events); n > 0 && events[n-1].Kind == "ended" {
			break
		}
		<-more
	}
	if _, err := h.Get(t.Context(), h.key, s.ID); err == nil || !strings.Contains(err.Error(), "first process ended") {
		t.Errorf("why: %v", err)
	}
}

func TestQuota(t *testing.T) {
	p := DefaultProfile()
	p.Quota = Quota{Sandboxes: 2, Memory: 1200 << 20}
	h := newHome(t, func(o *SandboxesOptions) { o.Profiles = map[string]Profile{"": p} })
	small := sandbox.Limits{Memory: 100 << 20, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	first := h.create(t, Create{})
	if got := first.Limits.Memory; got != 512<<20 {
		t.Errorf("memory %d", got)
	}
	h.create(t, Create{Limits: small})
	if _, err := h.Create(t.Context(), h.key, Create{Limits: small}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("a third: %v", err)
	}
	other := h.newKey(t, "other") // has its own
	s, err := h.Create(t.Context(), other, Create{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Kill(t.Context(), h.key, first.ID); err != nil {
		t.Fatal(err)
	}
	h.create(t, Create{Limits: small})
	_ = s
}

// What runs inside is decided and recorded, and variables are in no record.
func TestActionsAreRecorded(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{Env: map[string]string{"TOKEN": "secret-value"}})
	h.sh(t, s.ID, "echo $TOKEN | tr a-z A-Z")
	bad := &Call{}
	bad.Argv, bad.Rootfs = []string{"true"}, "/etc"
	if _, err := h.Exec(t.Context(), h.key, s.ID, bad, IO{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a command with a world of its own: %v", err)
	}
	denied := &Call{}
	denied.Argv, denied.Cwd = []string{"true"}, "../x"
	if _, err := h.Exec(t.Context(), h.key, s.ID, denied, IO{}); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("a command that cannot be meant: %v", err)
	}
	h.Kill(t.Context(), h.key, s.ID)
	var kinds []string
	for r, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call.Sandbox != s.ID || r.Call.Actor != "key:tester" {
			t.Errorf("record of %q by %q", r.Call.Sandbox, r.Call.Actor)
		}
		kinds = append(kinds, r.Call.Kind+" "+string(r.Ending.Status))
	}
	slices.Sort(kinds)
	want := []string{"end_sandbox allowed", "run_command allowed", "run_command refused", "start_sandbox allowed"}
	if !slices.Equal(kinds, want) {
		t.Errorf("recorded %q, want %q", kinds, want)
	}
	for _, name := range []string{"audit.db", "audit.db-wal"} {
		if data, err := os.ReadFile(h.dir.Path() + "/" + name); err == nil && strings.Contains(string(data), "secret-value") {
			t.Errorf("%s holds a variable's value", name)
		}
	}
}
