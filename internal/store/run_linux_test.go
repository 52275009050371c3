// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

func TestRunAndRemove(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	r, err := d.Run("sbx_1")
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(r.Path()); err != nil || fi.Mode().Perm() != 0o700 || r.ID() != "sbx_1" {
		t.Errorf("%s: %v, %v", r.Path(), fi, err)
	}
	if _, err := d.Run("sbx_1"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a second Run = %v, want ErrConflict", err)
	}
	if got := sweepAll(t, d); len(got) != 0 {
		t.Errorf("swept our own: %v", got)
	}
	if err := errors.Join(r.Remove(), r.Remove()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(r.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(d.Path(), runs, newRun+"*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRunRefusesNames(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	for _, id := range []string{"", ".", "..", "a/b", "../x", ".new-x", "a\x00b", "ä", strings.Repeat("x", 129)} {
		if _, err := d.Run(id); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("Run(%q) = %v, want ErrInvalid", id, err)
		}
	}
}

// TestRunsReplaced: the directory of the runs is judged each time, not once.
func TestRunsReplaced(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	dir := filepath.Join(d.Path(), runs)
	for name, spoil := range map[string]func() error{
		"wide":    func() error { return os.Chmod(dir, 0o755) },
		"foreign": func() error { return errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, nobody, -1)) },
		"a link":  func() error { return errors.Join(os.RemoveAll(dir), os.Symlink(t.TempDir(), dir)) },
	} {
		if name == "foreign" && os.Geteuid() != 0 {
			continue // only root gives files away
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if r, err := d.Run("sbx_1"); err == nil {
			t.Errorf("%s: it was used: %s", name, r.Path())
		}
		if _, err := d.Sweep(context.Background(), nil); err == nil {
			t.Errorf("%s: it was swept", name)
		}
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepAfterKill has one process hold a sandbox, which may not be swept,
// and kills it, after which it is swept.
func TestSweepAfterKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := mustOpen(t, path)
	dead, alive := hold(t, path, "dead"), hold(t, path, "alive")
	if got := sweepAll(t, d); len(got) != 0 {
		t.Fatalf("swept what is held: %v", got)
	}
	dead.Process.Kill() // SIGKILL: nothing of its own can run any more
	dead.Wait()

	var cleaned []string
	broken := errors.New("cannot unmount")
	if got, err := d.Sweep(context.Background(), func(context.Context, string) error { return broken }); !errors.Is(err, broken) || len(got) != 0 {
		t.Errorf("with a failing cleaner: %v, %v", got, err)
	}
	got, err := d.Sweep(context.Background(), func(_ context.Context, p string) error {
		cleaned = append(cleaned, p)
		if _, err := d.Run(filepath.Base(p)); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("the name was free while it was cleaned: %v", err)
		}
		return nil
	})
	if err != nil || !slices.Equal(got, []string{"dead"}) || !slices.Equal(cleaned, []string{path + "/run/dead"}) {
		t.Errorf("Sweep = %v, %v, cleaned %v", got, err, cleaned)
	}
	if _, err := os.Lstat(path + "/run/dead"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Lstat(path + "/run/alive/" + ownerLck); err != nil || alive.ProcessState != nil {
		t.Errorf("the live neighbour's is gone: %v", err)
	}
}

// TestSweepFollowsNothing plants what a sandbox or a tamperer could leave.
func TestSweepFollowsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := mustOpen(t, path)
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.MkdirAll(canary+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	dead := hold(t, path, "dead")
	dir := path + "/run/dead"
	plant := errors.Join(
		os.Symlink(canary, dir+"/link"),
		os.MkdirAll(dir+"/locked/in/deep", 0o755),
		os.Symlink(canary, dir+"/locked/in/link"),
		os.WriteFile(dir+"/locked/in/file", nil, 0o400),
		os.MkdirAll(dir+"/x/.moved-1/y/z", 0o755),
		os.Mkdir(dir+"/.moved-1", 0o700),
		unix.Mkfifo(dir+"/fifo", 0o600),
		os.WriteFile(canary+"/kept", []byte("kept"), 0o600),
		os.Link(canary+"/kept", dir+"/hard"),
		os.Chmod(dir+"/locked/in", 0),
		os.Chmod(dir+"/locked", 0),
	)
	if plant != nil {
		t.Fatal(plant)
	}
	// A run directory that is itself a link, and a lock that is a FIFO.
	if err := errors.Join(os.Symlink(canary, path+"/run/linked"), os.Mkdir(path+"/run/fifo", 0o700), unix.Mkfifo(path+"/run/fifo/"+ownerLck, 0o600)); err != nil {
		t.Fatal(err)
	}
	dead.Process.Kill()
	dead.Wait()

	got, err := d.Sweep(context.Background(), nil)
	if !slices.Equal(got, []string{"dead"}) {
		t.Errorf("swept %v, %v; want dead alone", got, err)
	}
	if err == nil {
		t.Error("the link and the FIFO passed without a word")
	}
	if b, err := os.ReadFile(canary + "/kept"); string(b) != "kept" || err != nil {
		t.Errorf("canary: %q, %v", b, err)
	}
	if _, err := os.Stat(canary + "/sub"); err != nil {
		t.Error(err)
	}
}

// TestRemoveKeepsMounts runs as a helper with mounts of its own.
func TestRemoveKeepsMounts(t *testing.T) {
	if _, failure := run(t, helper(t, 0, nil, "mounted", t.TempDir())); failure != nil {
		t.Error(failure["error"])
	}
}

// removeAcrossMount checks that what a mount inside shows outlives Remove,
// at any depth, and that Remove works once it is unmounted.
func removeAcrossMount(args []string) error {
	if err := tmpfs(args[0], "mode=0700"); err != nil {
		return err
	}
	d, err := Open(Options{Dir: args[0] + "/s"})
	if err != nil {
		return err
	}
	return errors.Join(keepsMount(d, args[0]+"/work1", "m"), keepsMount(d, args[0]+"/work2", "a/b/c"))
}

func keepsMount(d *Dir, work, where string) error {
	r, err := d.Run("sbx_1")
	if err != nil {
		return err
	}
	at := filepath.Join(r.Path(), where)
	if err := errors.Join(os.Mkdir(work, 0o755), os.WriteFile(work+"/kept", nil, 0o644), os.MkdirAll(at, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount(work, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := r.Remove(); !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("Remove over a mount: %w", err)
	}
	if _, err := os.Stat(work + "/kept"); err != nil {
		return fmt.Errorf("the mounted directory was emptied: %w", err)
	}
	// The walk moved its parents up; the mount is found where it is now.
	if err := unmountBelow(r.Path()); err != nil {
		return err
	}
	return r.Remove()
}

func unmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, dir+"/") {
			return unix.Unmount(at, 0)
		}
	}
	return fmt.Errorf("no mount below %s", dir)
}

// TestRemoveDeepTree removes 3000 nested directories, more than a path or the
// descriptor limit can hold, as an ordinary user with 16 descriptors.
func TestRemoveDeepTree(t *testing.T) {
	onlyRoot(t)
	if _, failure := run(t, helper(t, nobody, nil, "deep", theirs(t, nobody))); failure != nil {
		t.Error(failure["error"])
	}
}

func removeDeep(args []string) error {
	d, err := Open(Options{Dir: args[0] + "/s"})
	if err != nil {
		return err
	}
	r, err := d.Run("sbx_1")
	if err != nil {
		return err
	}
	if err := os.Chdir(r.Path()); err != nil {
		return err
	}
	for i := range 3000 {
		name := strings.Repeat("d", 1+i%200)
		if err := errors.Join(os.Mkdir(name, 0o700), os.WriteFile("f", nil, 0o400), os.Chdir(name)); err != nil {
			return err
		}
		if i%7 == 0 { // and some that may not be entered
			if err := os.Chmod("..", 0); err != nil {
				return err
			}
		}
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := os.Chmod(r.Path(), 0o700); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 16, Max: 16}); err != nil {
		return err
	}
	if err := r.Remove(); err != nil {
		return err
	}
	if _, err := os.Lstat(r.Path()); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("still there: %w", err)
	}
	return nil
}

// TestSweepUnfinished removes what a maker that died before the rename left,
// and nothing of a maker at work.
func TestSweepUnfinished(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	left := filepath.Join(d.Path(), runs, newRun+"X")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := d.openRuns()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	gate, err := lockFile(dir, making, unix.LOCK_SH) // a maker at work
	if err != nil {
		t.Fatal(err)
	}
	sweepAll(t, d)
	if _, err := os.Lstat(left); err != nil {
		t.Errorf("taken from under its maker: %v", err)
	}
	gate.Close()
	sweepAll(t, d)
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead maker's is still there: %v", err)
	}
}

// TestSweepUnpacking passes over a program that is being unpacked beside the run
// directories, or was when its unpacker died: its name begins as an unfinished one's.
func TestSweepUnpacking(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	left := filepath.Join(d.Path(), runs, newRun+"X")
	unready := filepath.Join(d.Path(), runs, ".new-engine")
	if err := errors.Join(os.Mkdir(left, 0o700), os.WriteFile(unready, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	sweepAll(t, d)
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead maker's is still there: %v", err)
	}
	if _, err := os.Lstat(unready); err != nil {
		t.Errorf("taken from under who unpacks it: %v", err)
	}
}

// TestSweepUnused removes the empty directories that earlier versions kept, unless one is
// held: its owner may be of such a version and about to use it.
func TestSweepUnused(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	free, held := filepath.Join(d.Path(), runs, unused+"0"), filepath.Join(d.Path(), runs, unused+"1")
	for _, dir := range []string{free, held} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, ownerLck), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	top, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	lock, err := flock(top, ownerLck, 0, unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if got := sweepAll(t, d); len(got) != 0 {
		t.Errorf("swept as sandboxes: %v", got)
	}
	if _, err := os.Lstat(free); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an earlier version's is still there: %v", err)
	}
	if _, err := os.Lstat(held); err != nil {
		t.Errorf("taken from under its owner: %v", err)
	}
}

// TestRemovedAtOnce has two remove the same tree, as a sandbox's keeper and the next
// sweep do when its owner was killed: neither may call it a fault that the other did.
func TestRemovedAtOnce(t *testing.T) {
	top := t.TempDir()
	dir, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for i := range 20 {
		name := fmt.Sprint("sbx_", i)
		for j := range 20 {
			if err := os.MkdirAll(filepath.Join(top, name, fmt.Sprint(j), "a", "b"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := removeTree(dir, name); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if _, err := os.Lstat(filepath.Join(top, name)); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("it is still there: %v", err)
		}
	}
}

// TestMakersAndSweepers lets 50 make and remove runs while 10 sweep: no held
// directory may be lost, and nothing may be left.
func TestMakersAndSweepers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := mustOpen(t, path)
	var makers, sweepers sync.WaitGroup
	stop := make(chan struct{})
	for range 10 {
		sweepers.Go(func() {
			own, err := Open(Options{Dir: path}) // as another process would
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := own.Sweep(context.Background(), nil); err != nil || len(got) != 0 {
					t.Errorf("swept what was held: %v, %v", got, err)
					return
				}
			}
		})
	}
	for i := range 50 {
		makers.Go(func() {
			for j := range 4 {
				r, err := d.Run(fmt.Sprintf("sbx_%d_%d", i, j))
				if err != nil {
					t.Error(err)
					return
				}
				file := filepath.Join(r.Path(), "f")
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(file); err != nil {
					t.Errorf("it vanished while held: %v", err)
				}
				if err := r.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	close(stop)
	sweepers.Wait()
	sweepAll(t, d)
	left, err := os.ReadDir(filepath.Join(path, runs))
	if err != nil || len(left) != 1 || left[0].Name() != making {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A directory is taken over by a copy of its own lock alone; it is held for as long as
// a copy exists.
func TestAdoptOfARunDirectory(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "state"))
	first, err := d.Run("sbx_first")
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.Run("sbx_other")
	if err != nil {
		t.Fatal(err)
	}
	hold := func(r *RunDir) *os.File {
		t.Helper()
		fd, err := unix.FcntlInt(r.Hold().Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "hold")
	}
	kept, wrong := hold(first), hold(other)
	defer wrong.Close()
	first.Release()
	if err := first.Remove(); err != nil {
		t.Errorf("removing what was released: %v", err)
	}
	swept, err := d.Sweep(t.Context(), nil)
	if err != nil || len(swept) != 0 {
		t.Fatalf("swept %q, which are held: %v", swept, err)
	}
	path, err := d.RunPath("sbx_first")
	if err != nil {
		t.Fatal(err)
	}
	fake, err := os.Create(filepath.Join(t.TempDir(), "owner.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	again, err := os.OpenFile(filepath.Join(path, "owner.lock"), os.O_RDWR, 0) // the right file, which is not held
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for what, f := range map[string]*os.File{"another directory's lock": wrong, "a file of the same name": fake, "the file without its lock": again} {
		if _, err := d.Adopt("sbx_first", f); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, id := range []string{"", "..", "sbx_other/../sbx_first", ".making"} {
		if _, err := d.Adopt(id, kept); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	r, err := d.Adopt("sbx_first", kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Remove(), other.Remove()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
