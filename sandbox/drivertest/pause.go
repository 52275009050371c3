// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

var pauseTests = []test{
	{name: "stands still and goes on", run: testPause, only: living},
	{name: "destroyed while it stands still", run: testPausedDies, only: living},
	{name: "written down, and gone on with", run: testRestore, only: living},
	{name: "two of one snapshot", run: testFork, only: living},
	{name: "files alone written down, and begun with", run: testFilesAlone, only: living},
}

// pauser starts a sandbox that beats, and has it as a Pauser. What cannot pause
// says so when it is asked, by name.
func (s *suite) pauser(t *testing.T, ctx context.Context) (inst sandbox.Instance, c *guest.Client, box sandbox.Pauser, files []string) {
	t.Helper()
	dir, inside, files := s.hearts(t)
	w := s.fixture(t, mount(t, dir, "/data", sandbox.ReadWrite))
	inst, c, box = s.pausable(t, ctx, w)
	x := w.exec(append([]string{"python3", "-I", "-S", "-c", prelude + beat}, inside...)...)
	if exit, err := c.Run(ctx, x); err != nil || exit.Code == nil || *exit.Code != 0 {
		inst.Destroy(context.WithoutCancel(ctx))
		t.Fatalf("it does not beat: %+v, %v", exit, err)
	}
	return inst, c, box, files
}

// pausable starts a sandbox and has it as a Pauser.
func (s *suite) pausable(t *testing.T, ctx context.Context, w *fixture) (inst sandbox.Instance, c *guest.Client, box sandbox.Pauser) {
	t.Helper()
	inst, c = s.live(t, ctx, w)
	box, ok := inst.(sandbox.Pauser)
	if s.caps.Pause && !ok {
		inst.Destroy(context.WithoutCancel(ctx))
		t.Fatal("Probe says that it can pause, and it has no way to")
	}
	if !s.caps.Pause {
		defer inst.Destroy(context.WithoutCancel(ctx))
		if ok && !errors.Is(box.Pause(ctx), sandbox.ErrUnsupported) {
			t.Error("Probe says that it cannot pause, and it does")
		}
		s.lacks(t, "no pause")
	}
	return inst, c, box
}

// ticking writes down when it was, over and over, in a file of the sandbox's own: where
// nothing of the host is mounted, what stood still is seen from inside, afterwards.
const ticking = `
if os.fork() == 0:
    os.setsid()
    with open('ticks', 'ab', 0) as f:
        while True:
            f.write(b'%d\n' % time.time_ns())
            time.sleep(0.01)
while not os.path.exists('ticks') or os.stat('ticks').st_size < 100: time.sleep(0.01)
`

// ticker is a sandbox in which something ticks.
func (s *suite) ticker(t *testing.T, ctx context.Context) (w *fixture, inst sandbox.Instance, c *guest.Client, box sandbox.Pauser) {
	t.Helper()
	w = s.fixture(t)
	inst, c, box = s.pausable(t, ctx, w)
	if exit, err := c.Run(ctx, w.exec("python3", "-I", "-S", "-c", prelude+ticking)); err != nil || exit.Code == nil || *exit.Code != 0 {
		inst.Destroy(context.WithoutCancel(ctx))
		t.Fatalf("it does not tick: %+v, %v", exit, err)
	}
	return w, inst, c, box
}

// ticks is how often it has ticked so far, and the longest time without, from the tick
// of that number on.
func ticks(t *testing.T, ctx context.Context, w *fixture, c *guest.Client, from int) (n int, longest time.Duration) {
	t.Helper()
	const line = `python3 -I -S -c 't = [int(x) for x in open("ticks").read().split("\n")[:-1]]; print(len(t), max(b - a for a, b in zip(t[%d:], t[%d:])))'`
	if _, err := fmt.Sscan(says(t, ctx, w, c, fmt.Sprintf(line, from, from+1)), &n, &longest); err != nil {
		t.Fatal(err)
	}
	return n, longest
}

func testPauseInside(t *testing.T, s *suite) {
	ctx := timeout(t)
	w, inst, c, box := s.ticker(t, ctx)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	for range 2 { // again after it went on
		n, _ := ticks(t, ctx, w, c, 0)
		for range 2 { // idempotent
			if err := box.Pause(ctx); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		<-time.After(time.Second) // a hundred ticks
		stood := time.Since(began)
		for range 2 {
			if err := box.Resume(ctx); err != nil {
				t.Fatal(err)
			}
		}
		// The session from before goes on, and so does what ran.
		if err := c.Health(ctx); err != nil {
			t.Fatal(err)
		}
		again, longest := ticks(t, ctx, w, c, n-2)
		for last := again; last == again; last, longest = ticks(t, ctx, w, c, n-2) {
			if ctx.Err() != nil {
				t.Fatal("what ran does not go on")
			}
		}
		if longest < stood*9/10 { // a clock inside may be another
			t.Errorf("it stood still for %v, and ticked after %v at the latest", stood, longest)
		}
	}
}

// live starts a sandbox and speaks with its agent, until the test ends.
func (s *suite) live(t *testing.T, ctx context.Context, w *fixture) (sandbox.Instance, *guest.Client) {
	t.Helper()
	inst, err := s.driver.Start(ctx, w.spec)
	if err != nil {
		t.Fatal(err)
	}
	return inst, s.speak(t, ctx, inst, w)
}

func (s *suite) speak(t *testing.T, ctx context.Context, inst sandbox.Instance, w *fixture) *guest.Client {
	t.Helper()
	// Not t.Cleanup: what is left is looked at before that.
	c, err := dial(ctx, inst, w.spec)
	if err == nil {
		_, err = c.Resume(ctx, guest.Resume{})
	}
	if err != nil {
		inst.Destroy(context.WithoutCancel(ctx))
		t.Fatal(err)
	}
	return c
}

func testPause(t *testing.T, s *suite, _ road) {
	if s.programs != nil {
		testPauseInside(t, s)
		return
	}
	ctx := timeout(t)
	inst, c, box, files := s.pauser(t, ctx)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	for range 2 { // again after it went on
		for range 2 { // idempotent
			if err := box.Pause(ctx); err != nil {
				t.Fatal(err)
			}
		}
		stopped(t, files)
		select {
		case <-inst.Ended():
			t.Fatal("it has ended")
		default:
		}
		for range 2 {
			if err := box.Resume(ctx); err != nil {
				t.Fatal(err)
			}
		}
		// The session from before goes on, and so does what ran.
		if err := c.Health(ctx); err != nil {
			t.Fatal(err)
		}
		for before := beats(files); beats(files) == before; {
			if ctx.Err() != nil {
				t.Fatal("what ran does not go on")
			}
			<-time.After(10 * time.Millisecond)
		}
	}
}

func testPausedDies(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	var inst sandbox.Instance
	var c *guest.Client
	var box sandbox.Pauser
	var files []string
	if s.programs != nil { // what is left of it shows on the host
		_, inst, c, box = s.ticker(t, ctx)
	} else {
		inst, c, box, files = s.pauser(t, ctx)
	}
	defer c.Close()
	if err := box.Pause(ctx); err != nil {
		inst.Destroy(ctx)
		t.Fatal(err)
	}
	for range 2 {
		if err := inst.Destroy(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if files != nil {
		stopped(t, files)
	}
}

// counting is a process that counts in its memory and shows it in a file.
const counting = `echo kept > ~/file; (n=0; while :; do n=$((n+1)); echo $n > ~/.n && mv ~/.n ~/n; sleep 0.02; done) > /dev/null 2>&1 &`

// counted is how far the process inside has come.
func counted(t *testing.T, ctx context.Context, w *fixture, c *guest.Client, least int) int {
	t.Helper()
	for {
		n, err := strconv.Atoi(says(t, ctx, w, c, "cat ~/n || echo 0"))
		if err != nil {
			t.Fatal(err)
		}
		if n >= least {
			return n
		}
	}
}

// says is what a line of shell prints inside.
func says(t *testing.T, ctx context.Context, w *fixture, c *guest.Client, line string) string {
	t.Helper()
	var out strings.Builder
	x := w.exec("sh", "-c", line)
	x.Stdout = &out
	if exit, err := c.Run(ctx, x); err != nil || exit.Code == nil {
		t.Fatalf("%s: %+v, %v", line, exit, err)
	}
	return strings.TrimSpace(out.String())
}

// writtenDown is a snapshot of a sandbox that counts, and how far it had come.
func (s *suite) writtenDown(t *testing.T, ctx context.Context) (dir string, n int) {
	t.Helper()
	_, can := s.driver.(sandbox.Restorer)
	if s.caps.Snapshot && !(can && s.caps.Pause) {
		t.Fatal("Probe says that it writes snapshots, and it restores none or cannot pause")
	}
	if !s.caps.Snapshot {
		s.lacks(t, "no snapshots")
	}
	w, port, end := s.reaching(t)
	defer end()
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	snap := inst.(sandbox.Snapshotter)
	s.speakOut(t, ctx, w, c, port)
	says(t, ctx, w, c, counting)
	n = counted(t, ctx, w, c, 3)
	// Without end it goes on, with it not.
	first := s.empty(t, "first")
	if err := snap.Snapshot(ctx, first, false); err != nil {
		t.Fatal(err)
	}
	n = counted(t, ctx, w, c, n+3)
	s.heard(t, ctx, w, c, "host")
	last := s.empty(t, "last")
	if err := snap.Snapshot(ctx, last, true); err != nil {
		t.Fatal(err)
	}
	return last, n
}

func snapshots(spec *sandbox.Spec) { spec.Snapshots = true }

// empty is an empty private directory.
func (s *suite) empty(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(s.path(t), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// restore has a sandbox go on from dir, until end.
func (s *suite) restore(t *testing.T, ctx context.Context, dir string) (w *fixture, c *guest.Client, end func()) {
	t.Helper()
	w, _, closed := s.reaching(t)
	inst, err := s.driver.(sandbox.Restorer).Restore(ctx, w.spec, dir)
	if err != nil {
		t.Fatal(err)
	}
	if inst.ID() != w.spec.ID {
		t.Errorf("ID %q, want %q", inst.ID(), w.spec.ID)
	}
	c = s.speak(t, ctx, inst, w)
	if !s.lingers {
		s.heard(t, ctx, w, c, "host", "ECONNRESET", "inside")
	}
	return w, c, func() {
		c.Close()
		inst.Destroy(context.WithoutCancel(ctx))
		closed()
	}
}

func testRestore(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	dir, n := s.writtenDown(t, ctx)
	w, c, end := s.restore(t, ctx, dir)
	defer end()
	if got := says(t, ctx, w, c, "cat ~/file"); got != "kept" {
		t.Errorf("the file holds %q", got)
	}
	// It counts on from where it was: the same process with its memory.
	counted(t, ctx, w, c, counted(t, ctx, w, c, n)+3)
}

func testFork(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	dir, n := s.writtenDown(t, ctx)
	wa, ca, enda := s.restore(t, ctx, dir)
	defer enda()
	says(t, ctx, wa, ca, "echo a > ~/file")
	wb, cb, endb := s.restore(t, ctx, dir)
	defer endb()
	if got := says(t, ctx, wb, cb, "cat ~/file; echo b > ~/file"); got != "kept" {
		t.Errorf("one sees what the other wrote: %q", got)
	}
	if got := says(t, ctx, wa, ca, "cat ~/file"); got != "a" {
		t.Errorf("one sees what the other wrote: %q", got)
	}
	counted(t, ctx, wa, ca, n+1)
	counted(t, ctx, wb, cb, n+1)
	// Copies of one kernel do not make the same numbers.
	const random = "head -c 16 /dev/urandom | od -An -tx1"
	if x, y := says(t, ctx, wa, ca, random), says(t, ctx, wb, cb, random); x == y || x == "" {
		t.Errorf("both draw %q", x)
	}
}

// testFilesAlone: what is on the disk is kept, on the default root and on an image, and
// what is in memory is not.
func testFilesAlone(t *testing.T, s *suite, _ road) {
	if !s.caps.Snapshot {
		s.lacks(t, "no snapshots")
	}
	ctx := timeout(t)
	const boot = "cat /proc/sys/kernel/random/boot_id"
	for name, make := range map[string]func(*testing.T, ...func(*sandbox.Spec)) *fixture{"default root": s.fixture, "image": s.imageFixture} {
		w := make(t, snapshots)
		inst, c := s.live(t, ctx, w)
		defer inst.Destroy(context.WithoutCancel(ctx))
		defer c.Close()
		files, can := inst.(sandbox.FileSnapshotter)
		if !can {
			s.lacks(t, "no snapshots of files alone")
		}
		first := says(t, ctx, w, c, boot)
		says(t, ctx, w, c, `echo kept > ~/file; echo lost > /dev/shm/file; cat /bin/sh > ~/large; sha256sum ~/large > ~/sum; sha256sum /dev/zero > /dev/null 2>&1 &`)
		// Beside the memory, of one moment: it stands still for both, and goes on.
		still := inst.(sandbox.Pauser)
		if err := errors.Join(still.Pause(ctx), inst.(sandbox.Snapshotter).Snapshot(ctx, s.empty(t, "memory of "+name), false),
			files.SnapshotFiles(ctx, s.empty(t, "files beside memory of "+name), false), still.Resume(ctx)); err != nil {
			t.Fatal(err)
		}
		if got := says(t, ctx, w, c, "echo goes on"); got != "goes on" {
			t.Errorf("%s: %q", name, got)
		}
		dir := s.empty(t, "files of "+name)
		if err := files.SnapshotFiles(ctx, dir, true); err != nil {
			t.Fatal(err)
		}
		if err := inst.Destroy(ctx); err != nil {
			t.Fatal(err)
		}
		w = make(t, snapshots)
		again, err := s.driver.(sandbox.Restorer).Restore(ctx, w.spec, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Destroy(context.WithoutCancel(ctx))
		c = s.speak(t, ctx, again, w)
		defer c.Close()
		found := says(t, ctx, w, c, `cat ~/file; sha256sum -c ~/sum; [ -e /dev/shm/file ] || echo gone; for p in /proc/[0-9]*/comm; do read c < $p && [ "$c" = sha256sum ] && echo runs; done`)
		if found != "kept\n"+w.spec.User.Home+"/large: OK\ngone" {
			t.Errorf("%s: %q", name, found)
		}
		if got := says(t, ctx, w, c, boot); got == first || got == "" {
			t.Errorf("%s: boot %q was %q", name, got, first)
		}
	}
}
