// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

var adoptTests = []test{
	{name: "it outlives an owner that is killed", run: testAdopt, only: living},
	{name: "it has one owner at a time", run: testOneOwner, only: living},
	{name: "no owner comes", run: testNobodyComes, only: living},
	{name: "its time is over meanwhile", run: testTimeIsOver, only: living},
	{name: "it was not allowed to outlive its owner", run: testNotGenerous, only: living},
	{name: "what takes claims is judged", run: testFalseClaims, only: living},
}

// outlives makes a fixture that may outlive its owner, and skips on a level whose
// sandboxes cannot, which must say so by name.
func (s *suite) outlives(t *testing.T) (*fixture, string) {
	t.Helper()
	if !s.caps.Survives {
		if s.caps.NoSurvival.Detail == "" {
			t.Error("Probe does not say why sandboxes die with their owner")
		}
		spec := &sandbox.Spec{ID: s.id(), StateDir: s.path(t)}
		if _, err := s.driver.Adopt(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("adopting is not refused by name: %v", err)
		}
		s.lacks(t, "no sandbox without its owner")
	}
	dir := s.path(t)
	w := s.fixture(t, generous(t, filepath.Join(dir, "lock")), mount(t, dir, "/data", sandbox.ReadWrite))
	return w, dir
}

// generous lets the fixture's sandbox outlive its owner, with a lock that it holds.
func generous(t *testing.T, lock string) func(*sandbox.Spec) {
	f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func(spec *sandbox.Spec) { spec.Outlives, spec.Hold = true, f }
}

// held says whether the lock is taken.
func held(t *testing.T, lock string) bool {
	t.Helper()
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err != nil
}

// adoptRoad is what an owner is told to do: to let its sandbox outlive it.
const adoptRoad = "adopt"

// left is what a killed owner has said of its sandbox.
type left struct {
	ID       string
	StateDir string
	User     sandbox.User
	Limits   sandbox.Limits
	Root     string // of its tree, in a cache that is cleared away now and then
}

// beGenerous starts a sandbox, lets it outlive its owner, and waits to be killed.
func (s *suite) beGenerous(t *testing.T, dir string) {
	ctx := t.Context()
	w, _, err := s.makeFixture(ctx, filepath.Join(dir, "state"), generous(t, filepath.Join(dir, "lock")), mount(t, dir, "/data", sandbox.ReadWrite))
	if err != nil {
		t.Fatal(err)
	}
	inst, c := s.live(t, ctx, w)
	x := w.exec("python3", "-I", "-S", "-c", prelude+beat, "/data/a", "/data/b")
	if exit, err := c.Run(ctx, x); err != nil || exit.Code == nil || *exit.Code != 0 {
		t.Fatalf("it does not beat: %+v, %v", exit, err)
	}
	if _, err := c.Run(ctx, w.exec("sh", "-c", "echo kept > file")); err != nil {
		t.Fatal(err)
	}
	if err := inst.(sandbox.Survivor).Outlive(5*time.Minute, time.Time{}); err != nil {
		t.Fatal(err)
	}
	// A program is under way, and speaks, when its owner is killed.
	x = w.exec("sh", "-c", "echo under way; while sleep 0.01; do seq 1000; done")
	x.Stdout = newWatcher()
	go c.Run(ctx, x)
	x.Stdout.(*watcher).wait(t, "under way")
	b, err := json.Marshal(left{w.spec.ID, w.spec.StateDir, w.spec.User, w.spec.Limits, w.spec.Root.Dir.Name()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nleft %s\n", b)
	<-inst.Ended()
	t.Fatal("it has ended")
}

// bereaved runs an owner, kills it, and says what it left.
func (s *suite) bereaved(t *testing.T, dir string) (spec *sandbox.Spec, root string) {
	t.Helper()
	owner := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$")
	owner.Env = append(os.Environ(), ownerEnv+"="+dir, ownerEnv+"_ROAD="+adoptRoad)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var l left
	for lines := bufio.NewScanner(out); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "left ")
		if !ok {
			t.Log(lines.Text())
			continue
		}
		if err := json.Unmarshal([]byte(rest), &l); err != nil {
			t.Fatal(err)
		}
		break
	}
	if err := owner.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = owner.Wait()
	if l.ID == "" {
		t.Fatal("the owner never began")
	}
	return &sandbox.Spec{ID: l.ID, StateDir: l.StateDir, User: l.User, Limits: l.Limits, Outlives: true}, l.Root
}

func testAdopt(t *testing.T, s *suite, _ road) {
	_, dir := s.outlives(t)
	dir = filepath.Join(dir, "owner")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx := timeout(t)
	spec, root := s.bereaved(t, dir)
	lock, files := filepath.Join(dir, "lock"), []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	if !held(t, lock) {
		t.Error("the lock of a sandbox that outlived its owner is free")
	}
	if !held(t, root) {
		t.Error("its root may be cleared away while it runs")
	}
	for range 2 { // the second owner leaves it, too
		inst, err := s.driver.Adopt(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		inst.Hold.Close()
		if inst.Far != nil {
			t.Error("it has a wire")
		}
		c := s.speak(t, ctx, inst, &fixture{spec: spec})
		var out strings.Builder
		x := &sandbox.Exec{Argv: []string{"cat", "file"}, Dir: home, Stdout: &out}
		if _, err := c.Run(ctx, x); err != nil || out.String() != "kept\n" {
			t.Errorf("its file has %q, %v", out.String(), err)
		}
		for before := beats(files); beats(files) == before; {
			if ctx.Err() != nil {
				t.Fatal("what ran does not go on")
			}
			<-time.After(10 * time.Millisecond)
		}
		if u, err := inst.Usage(ctx); err != nil || u.CPU != nil && *u.CPU == 0 {
			t.Errorf("usage: %+v, %v", u, err)
		}
		c.Close()
		if err := inst.Instance.(sandbox.Survivor).Leave(); err != nil {
			t.Error(err)
		}
	}
	inst, err := s.driver.Adopt(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	inst.Hold.Close()
	if err := inst.Destroy(ctx); err != nil {
		t.Error(err)
	}
	stopped(t, files)
	until(t, "the lock of a sandbox that is gone is free", func() bool { return !held(t, lock) })
	if _, err := s.driver.Adopt(ctx, spec); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("what is gone is adopted: %v", err)
	}
}

func testOneOwner(t *testing.T, s *suite, _ road) {
	w, _ := s.outlives(t)
	ctx := timeout(t)
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	if err := inst.(sandbox.Survivor).Outlive(time.Minute, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.driver.Adopt(ctx, w.spec); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("the sandbox of an owner that lives: %v", err)
	}
	if err := c.Health(ctx); err != nil {
		t.Errorf("its owner's session was ended: %v", err)
	}
	if err := inst.(sandbox.Survivor).Leave(); err != nil {
		t.Fatal(err)
	}
	// Two at once: one gets it.
	type got struct {
		*sandbox.Adopted
		error
	}
	heirs := make(chan got, 2)
	for range 2 {
		go func() {
			a, err := s.driver.Adopt(ctx, w.spec)
			heirs <- got{a, err}
		}()
	}
	first, second := <-heirs, <-heirs
	if first.error != nil {
		first, second = second, first
	}
	if first.error != nil || !errors.Is(second.error, sandbox.ErrConflict) {
		t.Fatalf("two claims at once: %v, %v", first.error, second.error)
	}
	first.Hold.Close()
	if err := first.Destroy(ctx); err != nil {
		t.Error(err)
	}
}

func testNobodyComes(t *testing.T, s *suite, _ road) {
	s.abandoned(t, 50*time.Millisecond, time.Time{})
}

func testTimeIsOver(t *testing.T, s *suite, _ road) {
	s.abandoned(t, time.Hour, time.Now())
}

func testNotGenerous(t *testing.T, s *suite, _ road) {
	s.abandoned(t, 0, time.Time{})
}

// abandoned leaves a sandbox that may outlive its owner by grace, and demands that it goes,
// with its directory, by itself.
func (s *suite) abandoned(t *testing.T, grace time.Duration, end time.Time) {
	t.Helper()
	w, dir := s.outlives(t)
	ctx := timeout(t)
	inst, c := s.live(t, ctx, w)
	files := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	x := w.exec("python3", "-I", "-S", "-c", prelude+beat, "/data/a", "/data/b")
	if exit, err := c.Run(ctx, x); err != nil || exit.Code == nil || *exit.Code != 0 {
		inst.Destroy(ctx)
		t.Fatalf("it does not beat: %+v, %v", exit, err)
	}
	box := inst.(sandbox.Survivor)
	err := box.Outlive(time.Hour, time.Time{})
	if err == nil {
		err = box.Outlive(grace, end) // the last counts
	}
	if err != nil {
		inst.Destroy(ctx)
		t.Fatal(err)
	}
	c.Close()
	if err := box.Leave(); err != nil {
		t.Fatal(err)
	}
	until(t, "a sandbox that nobody wants is gone", func() bool {
		_, err := os.Stat(w.spec.StateDir)
		return errors.Is(err, os.ErrNotExist)
	})
	stopped(t, files)
	if _, err := s.driver.Adopt(ctx, w.spec); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("adopting what is gone: %v", err)
	}
}

// testFalseClaims: a directory that others can reach, a link in the socket's place,
// and another sandbox's name are refused.
func testFalseClaims(t *testing.T, s *suite, _ road) {
	w, _ := s.outlives(t)
	ctx := timeout(t)
	inst, c := s.live(t, ctx, w)
	c.Close()
	box := inst.(sandbox.Survivor)
	if err := errors.Join(box.Outlive(time.Minute, time.Time{}), box.Leave()); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, spec *sandbox.Spec) {
		t.Helper()
		if a, err := s.driver.Adopt(ctx, spec); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				a.Hold.Close()
				_ = a.Instance.(sandbox.Survivor).Leave()
			}
		}
	}
	other := *w.spec
	other.ID = s.id()
	refused("another sandbox's name", &other)

	if err := os.Chmod(w.spec.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	refused("a directory that others can reach", w.spec)
	if err := os.Chmod(w.spec.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}

	// Somewhere that leads to the right one.
	link := *w.spec
	link.StateDir = filepath.Join(s.path(t), "link")
	if err := os.Symlink(w.spec.StateDir, link.StateDir); err != nil {
		t.Fatal(err)
	}
	refused("a link to its directory", &link)
	elsewhere := *w.spec
	elsewhere.StateDir = s.path(t)
	if err := errors.Join(os.Chmod(elsewhere.StateDir, 0o700), os.Symlink(socketIn(t, w.spec.StateDir), filepath.Join(elsewhere.StateDir, filepath.Base(socketIn(t, w.spec.StateDir))))); err != nil {
		t.Fatal(err)
	}
	refused("a link to its socket", &elsewhere)

	// A client that says nothing or nonsense keeps no other client out.
	silent, err := net.Dial("unix", shortened(t, socketIn(t, w.spec.StateDir)))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	loud, err := net.Dial("unix", shortened(t, socketIn(t, w.spec.StateDir)))
	if err != nil {
		t.Fatal(err)
	}
	defer loud.Close()
	if _, err := loud.Write([]byte(strings.Repeat("\xff", 4096))); err != nil {
		t.Fatal(err)
	}
	a, err := s.driver.Adopt(ctx, w.spec)
	if err != nil {
		t.Fatal(err)
	}
	a.Hold.Close()
	if err := a.Destroy(ctx); err != nil {
		t.Error(err)
	}
}

// socketIn finds the socket in a sandbox's directory.
func socketIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type() == os.ModeSocket {
			return filepath.Join(dir, e.Name())
		}
	}
	t.Fatalf("no socket in %s", dir)
	return ""
}

// shortened is another name for a socket, that an address has room for.
func shortened(t *testing.T, path string) string {
	t.Helper()
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd())
}
