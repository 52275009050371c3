// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session/registry"
)

// paced is a level on which a test says how much processor time a sandbox takes.
type paced struct {
	*watched
	percent atomic.Int64 // of one processor, by the clock of the test
	clock   *handClock
}

func (m *paced) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := m.watched.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &pacedBox{watchedBox: box.(*watchedBox), m: m, last: m.clock.Now()}, nil
}

type pacedBox struct {
	*watchedBox
	m    *paced
	cpu  time.Duration
	last time.Time
}

func (b *pacedBox) Usage(ctx context.Context) (sandbox.Usage, error) {
	u, err := b.watchedBox.Usage(ctx)
	now := b.m.clock.Now()
	b.cpu += now.Sub(b.last) * time.Duration(b.m.percent.Load()) / 100
	b.last = now
	cpu := b.cpu
	u.CPU = &cpu
	return u, err
}

func coolingHome(t *testing.T, cooling string) (*home, *paced) {
	m := &paced{watched: &watched{Driver: &faketest.Driver{Agent: true}}}
	h := newHome(t, func(o *SandboxesOptions) {
		f, err := policy.Parse("test.yaml", []byte("version: 1\ncooling: "+cooling+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		m.clock = o.Clock.(*handClock)
		o.Drivers = map[string]sandbox.Driver{"gvisor": m}
		o.Policies = map[string]*policy.File{"": f}
	})
	return h, m
}

// pass lets d pass in steps in which what is looked at now and then is looked at.
func (h *home) pass(d time.Duration) {
	for range d / readEvery {
		h.clock.move(readEvery)
	}
}

func (h *home) coldness(t *testing.T, id string) registry.Coldness {
	t.Helper()
	got, err := h.Handle(h.key, id).Get(t.Context())
	if err != nil || got.State != registry.Running {
		t.Fatalf("%+v, %v", got, err)
	}
	return got.Cold
}

// A sandbox that nothing uses stands still; the next call wakes it, and its time goes on
// meanwhile.
func TestGoesCold(t *testing.T) {
	h, _ := coolingHome(t, "{freeze: 1m}")
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	h.sh(t, s.ID, "echo kept >/tmp/file")
	h.pass(50 * time.Second)
	if c := h.coldness(t, s.ID); c != "" {
		t.Fatalf("after 50 s it is %q", c)
	}
	h.pass(30 * time.Second)
	if c := h.coldness(t, s.ID); c != registry.Frozen {
		t.Fatalf("after 80 s it is %q", c)
	}
	if n := h.Counts(); n["running"] != 1 || n["frozen"] != 1 {
		t.Errorf("counted %v", n)
	}
	if _, _, err := h.Find(t.Context(), s.ID); err != nil {
		t.Errorf("a client that has its token: %v", err)
	}
	if _, err := h.Handle(h.key, s.ID).Readings(t.Context(), time.Time{}); err != nil || h.coldness(t, s.ID) != registry.Frozen {
		t.Errorf("looking at it: %v", err)
	}
	if got := h.sh(t, s.ID, "cat /tmp/file"); got != "kept\n" || h.coldness(t, s.ID) != "" {
		t.Errorf("woken it says %q", got)
	}
	h.pass(90 * time.Second)
	if c := h.coldness(t, s.ID); c != registry.Frozen {
		t.Errorf("it is %q the second time", c)
	}
	// What its owner does with it, it is awake for, or need not be.
	if got, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil || got.State != registry.Paused {
		t.Fatalf("paused while it is frozen: %v, %v", got, err)
	}
	if _, err := h.Handle(h.key, s.ID).Resume(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	h.pass(90 * time.Second)
	h.clock.move(time.Hour)
	if got, err := h.Handle(h.key, s.ID).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("its time is over, and it is there: %+v, %v", got, err)
	}
}

// What uses the processor, or is used, is warm.
func TestStaysWarm(t *testing.T) {
	h, m := coolingHome(t, "{freeze: 1m}")
	used := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	_, leave, err := h.Handle(h.key, used.ID).Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.pass(5 * time.Minute)
	if c := h.coldness(t, used.ID); c != "" {
		t.Errorf("a caller is in it, and it is %q", c)
	}
	m.percent.Store(2)
	leave()
	h.pass(5 * time.Minute)
	if c := h.coldness(t, used.ID); c != "" {
		t.Errorf("it computes, and is %q", c)
	}
	m.percent.Store(0)
	h.pass(50 * time.Second)
	if c := h.coldness(t, used.ID); c != "" {
		t.Errorf("50 s after it has computed it is %q", c)
	}
	h.pass(2*time.Minute + 10*time.Second)
	if c := h.coldness(t, used.ID); c != registry.Frozen {
		t.Errorf("it is %q in the end", c)
	}
}

// Nothing goes cold where no policy says so.
func TestStaysWarmByDefault(t *testing.T) {
	off := newHome(t, nil)
	s := off.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	off.pass(30 * time.Minute)
	if c := off.coldness(t, s.ID); c != "" {
		t.Errorf("no policy says so, and it is %q", c)
	}
}

// One that is killed while it is being woken is gone, and both callers are told.
func TestKilledWhileWaking(t *testing.T) {
	h, m := coolingHome(t, "{freeze: 1m}")
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	h.pass(90 * time.Second)
	if c := h.coldness(t, s.ID); c != registry.Frozen {
		t.Fatalf("it is %q", c)
	}
	killed := make(chan error, 1)
	asking := make(chan struct{})
	m.resumed = func() {
		go func() {
			killed <- h.Handle(h.key, s.ID).Kill(&noticed{Context: t.Context(), seen: func() {
				select {
				case asking <- struct{}{}:
				default:
				}
			}})
		}()
		<-asking // it waits for its turn
	}
	_, leave, err := h.Handle(h.key, s.ID).Enter(t.Context())
	if err == nil {
		leave()
	} else if !errors.Is(err, sandbox.ErrNotFound) && !errors.Is(err, sandbox.ErrConflict) {
		t.Error(err)
	}
	if err := <-killed; err != nil {
		t.Error(err)
	}
	if got, err := h.Handle(h.key, s.ID).Get(t.Context()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("it is there: %+v, %v", got, err)
	}
}

// TestSeal: what is in a kept directory is what was written there, and is this user's alone.
func TestSeal(t *testing.T) {
	k := &keptDirs{dir: t.TempDir(), removeAll: os.RemoveAll}
	name, dir, err := k.create()
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("pages", "memory")
	if err := os.Mkdir(filepath.Join(dir, filesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filesDir+"/tar", "files")
	seal, err := k.seal(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "pages")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s := keptState{dir, seal}
	good := func() (memory, files error) { _, ferr := s.files(); return s.memory(), ferr }
	if m, f := good(); m != nil || f != nil {
		t.Fatal(m, f)
	}
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"a byte", func() { write("pages", "memorz") }},
		{"cut", func() { write("pages", "memor") }},
		{"another file", func() { write("pages", "memory"); write("more", "") }},
		{"another name", func() {
			os.Remove(filepath.Join(dir, "more"))
			os.Rename(filepath.Join(dir, "pages"), filepath.Join(dir, "page"))
		}},
		{"nothing", func() { os.Remove(filepath.Join(dir, "page")) }},
	} {
		c.do()
		if m, f := good(); !errors.Is(m, sandbox.ErrMisfit) || f != nil {
			t.Errorf("%s: %v, %v", c.what, m, f)
		}
	}
	os.Symlink("/etc/passwd", filepath.Join(dir, "pages"))
	if m, _ := good(); m == nil {
		t.Error("a link counts")
	}
}
