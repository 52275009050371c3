// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func spareNames() (names []string) {
	for n := range spares {
		names = append(names, spare+strconv.Itoa(n))
	}
	return names
}

func mustRun(t *testing.T, d *Dir, id string) *RunDir {
	t.Helper()
	r, err := d.Run(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustRemove(t *testing.T, r *RunDir) {
	t.Helper()
	if err := r.Remove(); err != nil {
		t.Fatal(err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(path, err)
	}
	return st.Ino
}

// pristine says that a run directory is this user's alone, empty but for its lock, and held.
func pristine(t *testing.T, d *Dir, r *RunDir) {
	t.Helper()
	fi, err := os.Lstat(r.Path())
	if err != nil || fi.Mode() != os.ModeDir|0o700 {
		t.Errorf("%s: %v, %v", r.Path(), fi, err)
	}
	entries, err := os.ReadDir(r.Path())
	if err != nil || len(entries) != 1 || entries[0].Name() != ownerLck || !entries[0].Type().IsRegular() {
		t.Errorf("in it: %v, %v", entries, err)
	}
	if got := sweepAll(t, d); len(got) != 0 {
		t.Errorf("swept: %v", got)
	}
	if _, err := os.Lstat(r.Path()); err != nil {
		t.Error(err)
	}
}

// TestSpareIsTaken: the next run has the directory and the lock of the one before, and
// nothing else of it.
func TestSpareIsTaken(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	r := mustRun(t, d, "sbx_1")
	dir, lock := inode(t, r.Path()), inode(t, r.Path()+"/"+ownerLck)
	err := errors.Join(os.WriteFile(r.Path()+"/f", []byte("x"), 0o600), os.MkdirAll(r.Path()+"/a/b", 0o700), os.Symlink("/", r.Path()+"/l"))
	if err != nil {
		t.Fatal(err)
	}
	mustRemove(t, r)
	if _, err := os.Lstat(r.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	next := mustRun(t, d, "sbx_2")
	if inode(t, next.Path()) != dir || inode(t, next.Path()+"/"+ownerLck) != lock {
		t.Error("it was made anew")
	}
	pristine(t, d, next)
	other := mustRun(t, d, "sbx_3") // beside the only spare, which is taken
	pristine(t, d, other)
	if _, err := d.Run("sbx_3"); err == nil {
		t.Error("one id had two directories")
	}
	mustRemove(t, other)
	if _, err := d.Run("sbx_2"); err == nil {
		t.Error("a spare took the place of a directory that is held")
	}
	mustRemove(t, next)
}

// TestSparesAreBounded: however many run at once, no more are kept.
func TestSparesAreBounded(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	var all []*RunDir
	for i := range 2 * spares {
		all = append(all, mustRun(t, d, "sbx_"+strconv.Itoa(i)))
	}
	for _, r := range all {
		mustRemove(t, r)
	}
	if left, err := filepath.Glob(filepath.Join(d.Path(), runs, spare+"*")); err != nil || len(left) != spares {
		t.Errorf("%d are kept: %v", len(left), err)
	}
}

// TestSpoiledSpares: whatever became of a spare, the next run's directory is clean, and
// nothing outside is touched.
func TestSpoiledSpares(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "canary")
	if err := errors.Join(os.MkdirAll(canary, 0o700), os.WriteFile(canary+"/"+ownerLck, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	spoils := map[string]func(dir string) error{
		"a file in it": func(dir string) error { return os.WriteFile(dir+"/f", nil, 0o600) },
		"wide":         func(dir string) error { return os.Chmod(dir, 0o755) },
		"sticky":       func(dir string) error { return os.Chmod(dir, os.ModeSticky|0o700) },
		"a wide lock":  func(dir string) error { return os.Chmod(dir+"/"+ownerLck, 0o644) },
		"a full lock":  func(dir string) error { return os.WriteFile(dir+"/"+ownerLck, []byte("x"), 0o600) },
		"a lock with two names": func(dir string) error {
			return os.Link(dir+"/"+ownerLck, filepath.Dir(dir)+"/.other")
		},
		"no lock": func(dir string) error { return os.Remove(dir + "/" + ownerLck) },
		"a linked lock": func(dir string) error {
			return errors.Join(os.Remove(dir+"/"+ownerLck), os.Symlink(canary+"/"+ownerLck, dir+"/"+ownerLck))
		},
		"a FIFO for lock": func(dir string) error {
			return errors.Join(os.Remove(dir+"/"+ownerLck), unix.Mkfifo(dir+"/"+ownerLck, 0o600))
		},
		"a link": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Symlink(canary, dir)) },
		"a file": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
	}
	if os.Geteuid() == 0 {
		spoils["foreign"] = func(dir string) error { return os.Chown(dir, nobody, -1) }
		spoils["a foreign lock"] = func(dir string) error { return os.Chown(dir+"/"+ownerLck, nobody, -1) }
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
			mustRemove(t, mustRun(t, d, "sbx_1"))
			if err := spoil(filepath.Join(d.Path(), runs, spare+"0")); err != nil {
				t.Fatal(err)
			}
			r := mustRun(t, d, "sbx_2")
			pristine(t, d, r)
			var st unix.Stat_t
			if err := unix.Lstat(r.Path()+"/"+ownerLck, &st); err != nil || st.Nlink != 1 || st.Size != 0 || st.Mode != unix.S_IFREG|0o600 || int(st.Uid) != os.Geteuid() {
				t.Errorf("its lock: %+v, %v", st, err)
			}
			if err := unix.Lstat(r.Path(), &st); err != nil || int(st.Uid) != os.Geteuid() {
				t.Errorf("it belongs to %d, %v", st.Uid, err)
			}
			mustRemove(t, r)
			if _, err := os.Lstat(canary + "/" + ownerLck); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLargeSpare: a directory that was made large stays so, and is not kept.
func TestLargeSpare(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	r := mustRun(t, d, "sbx_1")
	var st unix.Stat_t
	for i := 0; st.Size <= maxSpare; i++ {
		if i == 10000 {
			t.Skip("this file system's directories are small, whatever is in them")
		}
		name := filepath.Join(r.Path(), "a-long-name-so-that-it-takes-less-of-them-"+strconv.Itoa(i))
		if err := errors.Join(os.WriteFile(name, nil, 0o600), unix.Stat(r.Path(), &st)); err != nil {
			t.Fatal(err)
		}
	}
	mustRemove(t, r)
	if left, _ := filepath.Glob(filepath.Join(d.Path(), runs, spare+"*")); len(left) > 0 {
		if err := unix.Stat(left[0], &st); err != nil || st.Size > maxSpare {
			t.Errorf("%v has %d bytes, %v", left, st.Size, err)
		}
	}
}

// TestSpareIsHeld: a spare whose lock somebody has, as who keeps it does until it lets
// go, and a shim that has not ended for longer, is nobody else's.
func TestSpareIsHeld(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	r := mustRun(t, d, "sbx_1")
	fd, err := unix.Dup(int(r.Hold().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	mustRemove(t, r)
	held := filepath.Join(d.Path(), runs, spare+"0")
	next := mustRun(t, d, "sbx_2")
	if inode(t, next.Path()) == inode(t, held) {
		t.Error("it was taken")
	}
	unix.Close(fd)
	was := inode(t, held)
	if third := mustRun(t, d, "sbx_3"); inode(t, third.Path()) != was {
		t.Error("it was not taken when it was let go of")
	}
}

// TestSpareUnderAnotherName: a directory that was opened under one name and has got
// another since is not taken, swept or renamed under the first.
func TestSpareUnderAnotherName(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	dir, err := d.openRuns()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r := mustRun(t, d, "sbx_1")
	top, err := openSub(dir, "sbx_1")
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	mustRemove(t, r)
	if lock, err := lockDead(dir, "sbx_1", top); lock != nil || err != nil {
		t.Errorf("a sweep has the lock of a spare: %v", err)
	}
	// A new directory under that name is another one's.
	mustRun(t, d, "sbx_2").Release()
	r = mustRun(t, d, "sbx_1")
	defer r.Remove()
	if err := os.Rename(filepath.Join(d.Path(), runs, "sbx_2"), filepath.Join(d.Path(), runs, spare+"1")); err != nil {
		t.Fatal(err)
	}
	if lock := lockSpare(dir, spare+"0", top); lock != nil {
		t.Error("a spare was taken by a name that is no more its own")
	}
	if lock := lockSpare(dir, "sbx_1", top); lock != nil {
		t.Error("a spare was taken by the name of another directory")
	}
	pristine(t, d, r)
}

// TestSpareOfLowerLayer: a spare that lies in an image, below the overlay of who runs
// it, cannot be renamed, and is no reason to refuse a run.
func TestSpareOfLowerLayer(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d := mustOpen(t, filepath.Join(dir, "lower", "s"))
	first, second := mustRun(t, d, "sbx_1"), mustRun(t, d, "sbx_2")
	mustRemove(t, first)
	mustRemove(t, second)
	if out, failure := run(t, helper(t, 0, nil, "overlay", dir)); failure != nil || out != "" {
		t.Errorf("%s, %v", out, failure)
	}
}

// runOnOverlay has three runs in the place of the two whose spares lie in a lower layer,
// and prints what is not as it should be.
func runOnOverlay(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(args[0], name) }
	if err := unix.Mount("overlay", in("merged"), "overlay", 0, "redirect_dir=off,lowerdir="+in("lower")+",upperdir="+in("upper")+",workdir="+in("work")); err != nil {
		return err
	}
	d, err := Open(Options{Dir: in("merged/s")})
	if err != nil {
		return err
	}
	for n := range 3 {
		r, err := d.Run("sbx_" + strconv.Itoa(n))
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(r.Path())
		if err != nil || len(entries) != 1 || entries[0].Name() != ownerLck {
			fmt.Printf("in run %d: %v, %v; ", n, entries, err)
		}
		if err := r.Remove(); err != nil {
			return err
		}
	}
	left, err := filepath.Glob(filepath.Join(d.Path(), runs, spare+"*"))
	if len(left) != 1 {
		fmt.Printf("kept: %q", left)
	}
	return err
}

// TestSweepKeepsNoSpare: what a dead owner left is deleted.
func TestSweepKeepsNoSpare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := mustOpen(t, path)
	dead := hold(t, path, "dead")
	dead.Process.Kill()
	dead.Wait()
	if got, err := d.Sweep(context.Background(), nil); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(path, runs, spare+"*")); len(left) > 0 {
		t.Errorf("kept: %v", left)
	}
}
