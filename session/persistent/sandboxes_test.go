// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// Making a state directory's first root takes longer than most tests.
func TestSandboxes(t *testing.T) {
	h := newHome(t, nil)
	for name, test := range map[string]func(*testing.T, *home){
		"lives": testSandboxLives, "another key's": testAnotherKeysSandboxIsUnknown, "expiry": testExpiry, "ends by itself": testSandboxEndsByItself,
		"actions": testActionsAreRecorded, "acquire": testAcquireMakesOne, "readings": testReadings, "pages": testPages, "keys": testKeys, "lost session": testLostSession, "forgets": testForgets, "sweeps again": testSweepsAgain,
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
				if err := h.Handle(mine.key, s.ID).Kill(t.Context()); err != nil {
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
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = h.Handle(h.key, s.ID).Get(t.Context())
	if !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "killed by its owner") {
		t.Errorf("a sandbox that was killed: %v", err)
	}
	if err := h.Handle(h.key, s.ID).Kill(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("killed twice: %v", err)
	}
}

func testAnotherKeysSandboxIsUnknown(t *testing.T, h *home) {
	s := h.create(t, Create{})
	other := h.newKey(t, "other")
	_, unknown := h.Handle(other, "i00000000000000000000").Get(t.Context())
	tries := map[string]func(id string) error{
		"get":     func(id string) error { _, err := h.Handle(other, id).Get(t.Context()); return err },
		"kill":    func(id string) error { return h.Handle(other, id).Kill(t.Context()) },
		"extend":  func(id string) error { _, err := h.Handle(other, id).Extend(t.Context(), time.Minute); return err },
		"timeout": func(id string) error { _, err := h.Handle(other, id).SetTimeout(t.Context(), 0); return err },
		"agent":   func(id string) error { _, _, err := h.Handle(other, id).Enter(t.Context()); return err },
		"exec": func(id string) error {
			c := &session.Call{}
			c.Argv = []string{"true"}
			_, err := h.Handle(other, id).Exec(t.Context(), c, session.IO{})
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
	set := len(h.clock.timers) // for no sandbox
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Minute}})
	idle := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour, Idle: 10 * time.Second}})
	lives := func(id string, want bool) {
		t.Helper()
		if _, err := h.Handle(h.key, id).Get(t.Context()); (err == nil) != want {
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
	if got, err := h.Handle(h.key, s.ID).Extend(t.Context(), 10*time.Second); err != nil || !got.Ends.Equal(s.Ends) {
		t.Errorf("extended by less: %v, %v, want %v", got, err, s.Ends)
	}
	if got, err := h.Handle(h.key, s.ID).Extend(t.Context(), time.Minute); err != nil || got.Ends.Sub(h.clock.Now()) != time.Minute {
		t.Errorf("extended: %v, %v", got, err)
	}
	if got, err := h.Handle(h.key, s.ID).SetTimeout(t.Context(), 5*time.Second); err != nil || got.Ends.Sub(h.clock.Now()) != 5*time.Second {
		t.Errorf("set: %v, %v", got, err)
	}
	h.clock.move(5*time.Second - 1)
	lives(s.ID, true)
	h.clock.move(1)
	lives(s.ID, false)
	if _, err := h.Handle(h.key, s.ID).Get(t.Context()); err == nil || !strings.Contains(err.Error(), "its time of 5s was over") {
		t.Errorf("why: %v", err)
	}
	if len(h.clock.timers) != set { // of readings neither
		t.Errorf("%d timers are left, %d before", len(h.clock.timers), set)
	}
	if _, err := h.Create(t.Context(), h.key, Create{Lifetime: Lifetime{Timeout: 25 * time.Hour}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("longer than the profile: %v", err)
	}
}

func testSandboxEndsByItself(t *testing.T, h *home) {
	s := h.create(t, Create{})
	in, leave, err := h.Handle(h.key, s.ID).Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	l, _ := h.Handle(h.key, s.ID).find(t.Context())
	l.in.box.Destroy(t.Context()) // as when its agent is killed
	<-in.Gone
	for {
		events, more := h.Events(h.key, 0)
		if n := len(events); n > 0 && events[n-1].Kind == "ended" {
			break
		}
		<-more
	}
	if _, err := h.Handle(h.key, s.ID).Get(t.Context()); err == nil || !strings.Contains(err.Error(), "first process ended") {
		t.Errorf("why: %v", err)
	}
}

// What runs inside is decided and recorded, and variables are in no record.
func testActionsAreRecorded(t *testing.T, h *home) {
	s := h.create(t, Create{Env: map[string]string{"TOKEN": "secret-value"}})
	h.sh(t, s.ID, "echo $TOKEN | tr a-z A-Z")
	bad := &session.Call{}
	bad.Argv, bad.Rootfs = []string{"true"}, "/etc"
	if _, err := h.Handle(h.key, s.ID).Exec(t.Context(), bad, session.IO{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a command with an environment of its own: %v", err)
	}
	nowhere := &session.Call{}
	nowhere.Argv, nowhere.Cwd = []string{"true"}, "../x"
	if _, err := h.Handle(h.key, s.ID).Exec(t.Context(), nowhere, session.IO{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a command that cannot be meant: %v", err)
	}
	h.Handle(h.key, s.ID).Kill(t.Context())
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
	other, fresh, err := h.Acquire(t.Context(), h.newKey(t, "another"), "workbench", Create{})
	if err != nil || !fresh || ids[other.ID] != 0 {
		t.Fatalf("another key's: %v, %t, %v", other, fresh, err)
	}
	if err := h.Handle(&Key{ID: other.Owner}, other.ID).Kill(t.Context()); err != nil {
		t.Error(err)
	}
	for id := range ids {
		if _, err := h.Handle(h.key, id).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, fresh, err := h.Acquire(t.Context(), h.key, "workbench", Create{}); err != nil || fresh || s.ID != id || s.State != registry.Running {
			t.Errorf("while it is paused: %v, %t, %v", s, fresh, err)
		}
		if err := h.Handle(h.key, id).Kill(t.Context()); err != nil {
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
	got, err := h.Handle(h.key, s.ID).Readings(t.Context(), began.Add(6*time.Second))
	if err != nil || len(got) != 1 || got[0].Memory == nil || got[0].CPUPercent == nil {
		t.Errorf("readings %+v, %v", got, err)
	}
	var few series
	for i := range maxReadings + 10 {
		cpu := time.Duration(i) * time.Second
		few.add(sandbox.Usage{At: began.Add(time.Duration(2*i) * time.Second), CPU: &cpu})
	}
	all := few.since(time.Time{})
	if len(all) != maxReadings || *all[0].CPU != 10*time.Second || *all[0].CPUPercent != 50 {
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
					if _, err := h.Create(t.Context(), h.key, Create{Lifetime: Lifetime{Timeout: time.Minute}}); err != nil && !errors.Is(err, sandbox.ErrExhausted) {
						t.Error(err)
					}
					continue
				}
				id := page.Sandboxes[random.IntN(len(page.Sandboxes))].ID
				switch random.IntN(5) {
				case 0:
					err = h.Handle(h.key, id).Kill(t.Context())
				case 1:
					_, err = h.Handle(h.key, id).Pause(t.Context())
				case 2:
					_, _, err = h.Handle(h.key, id).Connect(t.Context(), time.Minute)
				case 3:
					_, err = h.Handle(h.key, id).SetTimeout(t.Context(), time.Second)
					h.clock.move(time.Second)
				case 4:
					c := &session.Call{}
					c.Argv = []string{"true"}
					_, err = h.Handle(h.key, id).Exec(t.Context(), c, session.IO{})
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
		l := newManaged(h.Sandboxes, &registry.Sandbox{ID: id, Owner: h.key.ID, State: state, Created: now.Add(time.Duration(i/2) * time.Second)})
		h.inventory.put(l)
		defer h.inventory.remove(l)
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
	// Records know a key by its name: no two that are valid have one.
	nameless, _, err := h.keys.Create(t.Context(), "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.keys.Create(t.Context(), "", "", ""); err != nil {
		t.Errorf("a second key without a name: %v", err)
	}
	for _, taken := range []string{"ci", nameless.ID, GivenKey} {
		if _, _, err := h.keys.Create(t.Context(), taken, "other", ""); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("a second key %s: %v", taken, err)
		}
	}
	if _, err := h.keys.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	if again, _, err := h.keys.Create(t.Context(), "ci", "", ""); err != nil || again.ID == k.ID {
		t.Errorf("the name of one that is revoked: %+v, %v", again, err)
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
	in, leave, err := h.Handle(h.key, s.ID).Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	in.agent.Close() // as the client does when the agent floods it
	if got := h.sh(t, s.ID, "echo back"); got != "back\n" {
		t.Errorf("after its session was lost: %q", got)
	}
	select {
	case <-in.Gone:
		t.Error("the sandbox is said to be gone")
	default:
	}
}
