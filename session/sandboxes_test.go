// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// Making a state directory's first root takes longer than most tests.
func TestSandboxes(t *testing.T) {
	h := newHome(t, nil)
	for name, test := range map[string]func(*testing.T, *home){
		"lives": testSandboxLives, "another key's": testAnotherKeysSandboxIsUnknown, "expiry": testExpiry, "ends by itself": testSandboxEndsByItself,
		"actions": testActionsAreRecorded, "acquire": testAcquireMakesOne, "readings": testReadings, "pages": testPages, "keys": testKeys, "lost session": testLostSession,
	} {
		t.Run(name, func(t *testing.T) {
			mine := *h
			mine.key = h.newKey(t, "tester of "+name)
			test(t, &mine)
			page, err := h.List(t.Context(), mine.key, Filter{})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Sandboxes {
				if err := h.Kill(t.Context(), mine.key, s.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func testSandboxLives(t *testing.T, h *home) {
	s := h.create(t, Create{Metadata: map[string]string{"a": "b"}, Env: map[string]string{"TOKEN": "shown"}})
	if len(s.ID) != 21 || s.State != registry.Running || s.Ends.Sub(s.Started) != 5*time.Minute {
		t.Errorf("made %+v", s)
	}
	h.sh(t, s.ID, "echo one > ~/file; (sleep 1000 & echo $! > ~/pid)")
	if got := h.sh(t, s.ID, "cat ~/file; kill -0 $(cat ~/pid) && echo $TOKEN $HOME"); got != "one\nshown /home/user\n" {
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

func testAnotherKeysSandboxIsUnknown(t *testing.T, h *home) {
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

func testExpiry(t *testing.T, h *home) {
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
	if len(h.clock.timers) != 0 { // of readings neither
		t.Errorf("%d timers are left", len(h.clock.timers))
	}
	if _, err := h.Create(t.Context(), h.key, Create{Timeout: 25 * time.Hour}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("longer than the profile: %v", err)
	}
}

func testSandboxEndsByItself(t *testing.T, h *home) {
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
	if _, err := h.Create(t.Context(), h.newKey(t, "other"), Create{}); err != nil {
		t.Errorf("another key has its own: %v", err)
	}
	if err := h.Kill(t.Context(), h.key, first.ID); err != nil {
		t.Fatal(err)
	}
	h.create(t, Create{Limits: small})
}

// TestQuotaOfPaused: what is paused with its memory where it is still counts for
// it, and a burst of pauses gets no more places than there are.
func TestQuotaOfPaused(t *testing.T) {
	p := DefaultProfile()
	p.Quota = Quota{Sandboxes: 8, Paused: 2, Memory: 450 << 20}
	h := newHome(t, func(o *SandboxesOptions) { o.Profiles = map[string]Profile{"": p} })
	small := sandbox.Limits{Memory: 100 << 20, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	var all []*Sandbox
	for range 4 {
		all = append(all, h.create(t, Create{Limits: small}))
	}
	var wait sync.WaitGroup
	var paused, refused atomic.Int32
	for _, s := range all {
		wait.Go(func() {
			switch _, err := h.Pause(t.Context(), h.key, s.ID); {
			case err == nil:
				paused.Add(1)
			case errors.Is(err, sandbox.ErrExhausted):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if paused.Load() != 2 || refused.Load() != 2 {
		t.Errorf("%d were paused and %d refused, where there are two places", paused.Load(), refused.Load())
	}
	if _, err := h.Create(t.Context(), h.key, Create{Limits: small}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("the memory of the paused, which they hold, was given again: %v", err)
	}
}

// What runs inside is decided and recorded, and variables are in no record.
func testActionsAreRecorded(t *testing.T, h *home) {
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
		if r.Call.Sandbox != s.ID {
			continue
		}
		if r.Call.Actor != h.key.Actor() {
			t.Errorf("a record by %q", r.Call.Actor)
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

func TestPauseAndResume(t *testing.T) {
	h := newHome(t, nil)
	s := h.create(t, Create{Timeout: time.Minute, OnTimeout: registry.Pause})
	h.sh(t, s.ID, "echo kept > ~/file")
	in, leave, err := h.Agent(t.Context(), h.key, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	h.clock.move(time.Minute)
	<-in.Gone
	if got, err := h.Get(t.Context(), h.key, s.ID); err != nil || got.State != registry.Paused {
		t.Fatalf("when its time was over: %v, %v", got, err)
	}
	if _, err := h.Pause(t.Context(), h.key, s.ID); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("paused twice: %v", err)
	}
	if _, _, err := h.Agent(t.Context(), h.key, s.ID); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("asked while it is paused: %v", err)
	}
	h.clock.move(time.Hour) // its time does not run
	got, resumed, err := h.Connect(t.Context(), h.key, s.ID, 2*time.Minute)
	if err != nil || !resumed || got.State != registry.Running || got.Ends.Sub(h.clock.Now()) != 2*time.Minute || got.Resumed != 1 {
		t.Fatalf("resumed: %+v, %t, %v", got, resumed, err)
	}
	if got := h.sh(t, s.ID, "cat ~/file"); got != "kept\n" {
		t.Errorf("its file has %q", got)
	}
	if _, err := h.Resume(t.Context(), h.key, s.ID, 0); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("resumed while it runs: %v", err)
	}
	if _, err := h.Pause(t.Context(), h.key, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := h.Kill(t.Context(), h.key, s.ID); err != nil {
		t.Errorf("killed while it is paused: %v", err)
	}

	// One that wants to is woken by who asks something of it.
	s = h.create(t, Create{AutoResume: true})
	if _, err := h.Pause(t.Context(), h.key, s.ID); err != nil {
		t.Fatal(err)
	}
	if got := h.sh(t, s.ID, "echo awake"); got != "awake\n" {
		t.Errorf("woken it says %q", got)
	}
	// Its memory is caisson's: it ends with it, and is said to.
	if _, err := h.Pause(t.Context(), h.key, s.ID); err != nil {
		t.Fatal(err)
	}
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

// writer is a level whose snapshots are empty files.
type writer struct{ *faketest.Driver }

func (w writer) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := w.Driver.Start(ctx, spec)
	return written{box}, err
}

type written struct{ sandbox.Instance }

func (written) Snapshot(context.Context, string, bool) error { return nil }

// heavy is a level whose snapshots take a megabyte.
type heavy struct{ *faketest.Driver }

func (w heavy) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := w.Driver.Start(ctx, spec)
	return weighed{box}, err
}

type weighed struct{ sandbox.Instance }

const weight = 1 << 20

func (weighed) Snapshot(_ context.Context, dir string, _ bool) error {
	return os.WriteFile(filepath.Join(dir, "memory"), bytes.Repeat([]byte("x"), weight), 0o600)
}

// What snapshots take counts for the disk of their key, before and after a restart,
// and is free again when they are deleted.
func TestSnapshotsTakeDisk(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}
	one := LivingLimits().Disk + LivingLimits().Tmp
	profile := func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": heavy{d}}
		p := DefaultProfile()
		p.Quota.Disk = one + 2*weight + weight/2 // two snapshots, and what their directories take
		o.Profiles = map[string]Profile{"": p}
	}
	h := newHome(t, profile)
	s := h.create(t, Create{})
	var last *Snapshot
	for range 2 {
		var err error
		if last, err = h.Snapshot(t.Context(), h.key, s.ID, ""); err != nil || last.Bytes < weight {
			t.Fatalf("%+v, %v", last, err)
		}
	}
	more := func() error { _, err := h.Snapshot(t.Context(), h.key, s.ID, ""); return err }
	if err := more(); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("a third: %v", err)
	}
	kept, err := os.ReadDir(filepath.Join(h.o.State.Path(), keptDir))
	if err != nil || len(kept) != 2 {
		t.Errorf("%d are kept, %v", len(kept), err)
	}
	if err := h.DeleteSnapshot(t.Context(), h.key, last.ID); err != nil {
		t.Fatal(err)
	}
	if err := more(); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
	if err := h.Kill(t.Context(), h.key, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.open(t, profile)
	s = h.create(t, Create{})
	if err := more(); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("a third after a restart: %v", err)
	}
	if _, err := h.Create(t.Context(), h.key, Create{}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("another sandbox: %v", err)
	}
}

// A key has so many snapshots and no more, also when it asks for all at once.
func TestSnapshotsAtOnce(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Snapshot = true }}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": writer{d}} })
	s := h.create(t, Create{})
	most := DefaultProfile().Quota.Snapshots
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for range most + 20 {
		all.Go(func() {
			switch _, err := h.Snapshot(t.Context(), h.key, s.ID, ""); {
			case err == nil:
				made.Add(1)
			case errors.Is(err, sandbox.ErrExhausted):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	have, err := h.Snapshots(t.Context(), h.key, "")
	if err != nil || len(have) > most || len(have) != int(made.Load()) || refused.Load() < 20 {
		t.Errorf("%d snapshots, %d made, %d refused, %v", len(have), made.Load(), refused.Load(), err)
	}
	for len(have) < most { // places that were not used are free
		one, err := h.Snapshot(t.Context(), h.key, s.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		have = append(have, one)
	}
	if _, err := h.Snapshot(t.Context(), h.key, s.ID, ""); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("one too many: %v", err)
	}
	if err := h.DeleteSnapshot(t.Context(), h.key, have[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Snapshot(t.Context(), h.key, s.ID, ""); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
}

func TestLevelThatCannotPauseSaysSo(t *testing.T) {
	d := &faketest.Driver{Agent: true, Caps: func(c *sandbox.Capabilities) { c.Pause = false }}
	h := newHome(t, func(o *SandboxesOptions) { o.Drivers = map[string]sandbox.Driver{"gvisor": d} })
	if _, err := h.Create(t.Context(), h.key, Create{OnTimeout: registry.Pause}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("made to be paused: %v", err)
	}
	s := h.create(t, Create{})
	if _, err := h.Pause(t.Context(), h.key, s.ID); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("paused: %v", err)
	}
	if _, err := h.PauseFiles(t.Context(), h.key, s.ID); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("paused without its memory: %v", err)
	}
	h.sh(t, s.ID, "true") // it goes on
	if err := h.Kill(t.Context(), h.key, s.ID); err != nil || d.Running() != 0 {
		t.Errorf("killed: %v, %d are left", err, d.Running())
	}
}

func testAcquireMakesOne(t *testing.T, h *home) {
	var mu sync.Mutex
	ids, made := map[string]int{}, 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, fresh, err := h.Acquire(t.Context(), h.key, "workbench", Create{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			ids[s.ID]++
			if fresh {
				made++
			}
		})
	}
	all.Wait()
	if len(ids) != 1 || made != 1 {
		t.Errorf("%d sandboxes, %d times new: %v", len(ids), made, ids)
	}
	other, fresh, err := h.Acquire(t.Context(), h.newKey(t, "other"), "workbench", Create{})
	if err != nil || !fresh || ids[other.ID] != 0 {
		t.Fatalf("another key's: %v, %t, %v", other, fresh, err)
	}
	if err := h.Kill(t.Context(), &Key{ID: other.Owner}, other.ID); err != nil {
		t.Error(err)
	}
	for id := range ids {
		if _, err := h.Pause(t.Context(), h.key, id); err != nil {
			t.Fatal(err)
		}
		if s, fresh, err := h.Acquire(t.Context(), h.key, "workbench", Create{}); err != nil || fresh || s.ID != id || s.State != registry.Running {
			t.Errorf("while it is paused: %v, %t, %v", s, fresh, err)
		}
		if err := h.Kill(t.Context(), h.key, id); err != nil {
			t.Fatal(err)
		}
		if s, fresh, err := h.Acquire(t.Context(), h.key, "workbench", Create{}); err != nil || !fresh || s.ID == id {
			t.Errorf("after its end: %v, %t, %v", s, fresh, err)
		}
	}
}

func testReadings(t *testing.T, h *home) {
	s := h.create(t, Create{})
	began := h.clock.Now()
	h.clock.move(5 * time.Second)
	h.clock.move(5 * time.Second)
	got, err := h.Readings(t.Context(), h.key, s.ID, began.Add(6*time.Second))
	if err != nil || len(got) != 1 || got[0].Memory == nil || got[0].CPUPercent == nil {
		t.Errorf("readings %+v, %v", got, err)
	}
	var few series
	for i := range mostReadings + 10 {
		cpu := time.Duration(i) * time.Second
		few.add(sandbox.Usage{At: began.Add(time.Duration(2*i) * time.Second), CPU: &cpu})
	}
	all := few.since(time.Time{})
	if len(all) != mostReadings || *all[0].CPU != 10*time.Second || *all[0].CPUPercent != 50 {
		t.Errorf("%d kept, from %v", len(all), all[0])
	}
}

// What many ask for at once, in any order, leaves each sandbox running, paused or
// gone, and nothing else.
func TestSandboxesAtOnce(t *testing.T) {
	p := DefaultProfile()
	p.Quota = Quota{Sandboxes: 6}
	h := newHome(t, func(o *SandboxesOptions) { o.Profiles = map[string]Profile{"": p} })
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 12 {
				page, err := h.List(t.Context(), h.key, Filter{})
				if err != nil {
					t.Error(err)
					return
				}
				if len(page.Sandboxes) == 0 || random.IntN(3) == 0 {
					if _, err := h.Create(t.Context(), h.key, Create{Timeout: time.Minute}); err != nil && !errors.Is(err, sandbox.ErrExhausted) {
						t.Error(err)
					}
					continue
				}
				id := page.Sandboxes[random.IntN(len(page.Sandboxes))].ID
				switch random.IntN(5) {
				case 0:
					err = h.Kill(t.Context(), h.key, id)
				case 1:
					_, err = h.Pause(t.Context(), h.key, id)
				case 2:
					_, _, err = h.Connect(t.Context(), h.key, id, time.Minute)
				case 3:
					_, err = h.SetTimeout(t.Context(), h.key, id, time.Second)
					h.clock.move(time.Second)
				case 4:
					c := &Call{}
					c.Argv = []string{"true"}
					_, err = h.Exec(t.Context(), h.key, id, c, IO{})
				}
				for _, fine := range []error{sandbox.ErrNotFound, sandbox.ErrConflict, sandbox.ErrExhausted, sandbox.ErrUnavailable} {
					if errors.Is(err, fine) {
						err = nil
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	page, err := h.List(t.Context(), h.key, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	d := h.driver.(*faketest.Driver)
	if d.Running() != len(page.Sandboxes) {
		t.Errorf("%d sandboxes live, %d are listed", d.Running(), len(page.Sandboxes))
	}
	left, err := h.reg.Left(t.Context())
	if err != nil || len(left) != len(page.Sandboxes) {
		t.Errorf("%d are in the registry (%v), %d are listed", len(left), err, len(page.Sandboxes))
	}
	if page.Running > 6 {
		t.Errorf("%d run, the quota is 6", page.Running)
	}
}

func testPages(t *testing.T, h *home) {
	now := h.clock.Now()
	for i := range 25 { // rows are enough: nothing is asked of them
		id := registry.NewID("i", 20)
		state := registry.Running
		if i%5 == 0 {
			state = registry.Paused
		}
		l := newLiving(h.Sandboxes, &registry.Sandbox{ID: id, Owner: h.key.ID, State: state, Created: now.Add(time.Duration(i/2) * time.Second)})
		h.all[id] = l
		defer delete(h.all, id)
	}
	for _, oldest := range []bool{false, true} {
		seen := map[string]bool{}
		var last time.Time
		for cursor, pages := "", 0; ; pages++ {
			p, err := h.List(t.Context(), h.key, Filter{Limit: 7, Cursor: cursor, OldestFirst: oldest})
			if err != nil || p.Running != 20 {
				t.Fatalf("page %d: %v, %d running", pages, err, p.Running)
			}
			for _, s := range p.Sandboxes {
				if seen[s.ID] {
					t.Errorf("%s is on two pages", s.ID)
				}
				seen[s.ID] = true
				if !last.IsZero() && (oldest && s.Created.Before(last) || !oldest && s.Created.After(last)) {
					t.Errorf("out of order")
				}
				last = s.Created
			}
			if cursor = p.Next; cursor == "" {
				break
			}
		}
		if len(seen) != 25 {
			t.Errorf("%d of 25 were on a page", len(seen))
		}
	}
	if _, err := h.List(t.Context(), h.key, Filter{Cursor: "x"}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("an odd cursor: %v", err)
	}
}

func testKeys(t *testing.T, h *home) {
	k, token, err := h.keys.Create(t.Context(), "ci", "", "")
	if err != nil || !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(token) {
		t.Fatalf("token %q, %v", token, err)
	}
	if got, err := h.keys.Authenticate(t.Context(), token); err != nil || got.ID != k.ID {
		t.Errorf("the key itself: %v, %v", got, err)
	}
	for _, bad := range []string{"", "e2b_", token[:43], token + "0", strings.ToUpper(token), strings.TrimPrefix(token, "e2b_")} {
		if _, err := h.keys.Authenticate(t.Context(), bad); !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, name := range []string{"registry.db", "registry.db-wal"} {
		if data, err := os.ReadFile(filepath.Join(h.dir.Path(), name)); err == nil && strings.Contains(string(data), token[4:]) {
			t.Errorf("%s holds the key", name)
		}
	}
	if _, err := h.keys.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.keys.Authenticate(t.Context(), token); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("revoked: %v", err)
	}
	if _, err := OpenKeys(h.reg, "short"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a short key from the environment: %v", err)
	}
	given, err := OpenKeys(h.reg, "an-operators-own-long-key")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := given.Authenticate(t.Context(), "an-operators-own-long-key"); err != nil || got.ID != GivenKey {
		t.Errorf("given: %v, %v", got, err)
	}
	// A key of the registry stays itself, with its policy, where it is exported.
	bound, secret, err := h.keys.Create(t.Context(), "bound", "ci", "")
	if err != nil {
		t.Fatal(err)
	}
	if given, err = OpenKeys(h.reg, secret); err != nil {
		t.Fatal(err)
	}
	if got, err := given.Authenticate(t.Context(), secret); err != nil || got.ID != bound.ID || got.Policy != "ci" {
		t.Errorf("given, and in the registry: %+v, %v", got, err)
	}
}

// A session that was lost is begun again: it is not the sandbox that ended.
func testLostSession(t *testing.T, h *home) {
	s := h.create(t, Create{})
	in, leave, err := h.Agent(t.Context(), h.key, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	in.Agent.Close() // as the client does when the agent floods it
	if got := h.sh(t, s.ID, "echo back"); got != "back\n" {
		t.Errorf("after its session was lost: %q", got)
	}
	select {
	case <-in.Gone:
		t.Error("the sandbox is said to be gone")
	default:
	}
}
