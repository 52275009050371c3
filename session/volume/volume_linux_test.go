// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// house is a state directory with sandboxes, and a workspace.
type house struct {
	t         *testing.T
	store     *Store
	workspace string
}

func newHouse(t *testing.T) *house {
	dir := t.TempDir()
	h := &house{t, In(filepath.Join(dir, "state")), filepath.Join(dir, "w")}
	for _, d := range []string{h.store.state + "/run", h.workspace} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// use is the volume home in a sandbox, which ends when end is called.
func (h *house) use(sandboxID string, o Options) (src *hostpath.Source, end func(), err error) {
	h.t.Helper()
	run := filepath.Join(h.store.state, "run", sandboxID)
	if err := os.MkdirAll(run, 0o700); err != nil {
		h.t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(run, "owner.lock"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		h.t.Fatal(err)
	}
	w, err := hostpath.Open(h.workspace, hostpath.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer w.Close()
	o.Name, o.Workspace = "home", w
	o.Use.Run, o.Use.StateDir, o.Use.Level = run, h.store.state, "gvisor"
	src, err = h.store.Use(o)
	if err == nil {
		h.t.Cleanup(func() { src.Close() })
	}
	return src, func() { lock.Close(); os.RemoveAll(run) }, err
}

func refused(t *testing.T, err error, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) || sandbox.Hint(err) == "" {
		t.Errorf("%v (hint %q), want %v with %q", err, sandbox.Hint(err), kind, text)
	}
}

// Two sandboxes whose locks are their own do not have one volume, and what a sandbox has
// is not removed.
func TestInUse(t *testing.T) {
	h := newHouse(t)
	own := Options{Use: hostpath.Use{Own: true}}
	_, end, err := h.use("one", own)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = h.use("two", own)
	refused(t, err, sandbox.ErrConflict, "sandbox one has it")
	list, err := h.store.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	refused(t, h.store.Remove(list[0].ID), sandbox.ErrConflict, "sandbox one has it")
	end()
	if _, end, err = h.use("three", own); err != nil {
		t.Fatal(err)
	}
	end()
	if err := h.store.Remove(list[0].ID); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(h.store.path())
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

// Where locks hold between sandboxes, both have it; it is still not removed.
func TestShared(t *testing.T) {
	h := newHouse(t)
	_, _, err := h.use("one", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.use("two", Options{}); err != nil {
		t.Fatal(err)
	}
	list, _ := h.store.List()
	refused(t, h.store.Remove(list[0].ID), sandbox.ErrConflict, "has it")
}

// What code leaves in a volume leads nowhere: not when it is used, counted or removed.
func TestHostile(t *testing.T) {
	h := newHouse(t)
	canary := t.TempDir()
	if err := os.WriteFile(filepath.Join(canary, "bird"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	src, end, err := h.use("one", Options{Files: map[string]string{"a/b": "text"}})
	if err != nil {
		t.Fatal(err)
	}
	end()
	data := src.Real
	for name, make := range map[string]func(string) error{
		"link":   func(at string) error { return os.Symlink(canary, at) },
		"closed": func(at string) error { return os.Mkdir(at, 0) },
		"pipe":   func(at string) error { return unix.Mkfifo(at, 0o600) },
		"deep": func(at string) error {
			return os.MkdirAll(at+strings.Repeat("/d", 200), 0o700)
		},
	} {
		if err := make(filepath.Join(data, name)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := h.store.List()
	if err != nil || len(list) != 1 || !list[0].Partly || list[0].Bytes >= 4<<20 {
		t.Fatalf("%+v, %v", list, err)
	}
	_, _, err = h.use("two", Options{Size: 64 << 20})
	refused(t, err, sandbox.ErrExhausted, "how much it has cannot be told")
	if err := h.store.Remove(list[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(canary, "bird")); err != nil {
		t.Errorf("the canary is gone: %v", err)
	}
}

// A link that took the place of a volume's directory is not mounted.
func TestNoLinkInItsPlace(t *testing.T) {
	h := newHouse(t)
	src, end, err := h.use("one", Options{})
	if err != nil {
		t.Fatal(err)
	}
	end()
	if err := errors.Join(os.Remove(src.Real), os.Symlink(h.workspace, src.Real)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.use("two", Options{}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// What code closes is open again for who uses or removes it. Root needs no permission, so
// the test looks at the mode.
func TestClosed(t *testing.T) {
	h := newHouse(t)
	src, end, err := h.use("one", Options{})
	if err != nil {
		t.Fatal(err)
	}
	end()
	if err := os.Chmod(src.Real, 0); err != nil {
		t.Fatal(err)
	}
	if _, end, err = h.use("two", Options{Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	end()
	if info, err := os.Stat(src.Real); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	list, _ := h.store.List()
	if err := errors.Join(os.Chmod(src.Real, 0), h.store.Remove(list[0].ID)); err != nil {
		t.Error(err)
	}
}

// A workspace that was removed and made again has a volume of its own, though file systems
// like to give it the same inode.
func TestMadeAgain(t *testing.T) {
	a := about{Name: "home", Workspace: "/w", Dev: 1, Ino: 2, Btime: 3}
	again := a
	again.Btime++
	if a.id() == again.id() {
		t.Error("the birth does not count")
	}
	h := newHouse(t)
	first, end, err := h.use("one", Options{})
	if err != nil {
		t.Fatal(err)
	}
	end()
	before := btimeOf(unix.AT_FDCWD, h.workspace)
	if before == 0 {
		t.Skip("the file system does not say when a directory was made")
	}
	for before == btimeOf(unix.AT_FDCWD, h.workspace) { // its clock may be a coarse one
		if err := errors.Join(os.Remove(h.workspace), os.Mkdir(h.workspace, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	second, end, err := h.use("two", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if first.Real == second.Real {
		t.Error("it has the volume of the one that was removed")
	}
	list, err := h.store.List()
	if err != nil || len(list) != 2 || list[0].Gone == list[1].Gone {
		t.Errorf("%+v, %v", list, err)
	}
}

// A volume of which a power failure left an empty description is listed and removed, and is
// in the way of no other.
func TestBroken(t *testing.T) {
	h := newHouse(t)
	src, end, err := h.use("one", Options{})
	if err != nil {
		t.Fatal(err)
	}
	end()
	if err := os.Truncate(filepath.Join(filepath.Dir(src.Real), aboutFile), 0); err != nil {
		t.Fatal(err)
	}
	list, err := h.store.List()
	if err != nil || len(list) != 1 || !list[0].Gone {
		t.Fatalf("%+v, %v", list, err)
	}
	v, err := h.store.Find(list[0].ID)
	if err == nil {
		err = h.store.Remove(v.ID)
	}
	if err != nil {
		t.Error(err)
	}
}

// What makes a volume may be killed: the next removal takes away what it left, and not
// what is being made.
func TestAbandoned(t *testing.T) {
	h := newHouse(t)
	src, end, err := h.use("one", Options{})
	if err != nil {
		t.Fatal(err)
	}
	end()
	all := filepath.Dir(filepath.Dir(src.Real))
	for name, age := range map[string]time.Duration{makingDir + "old": 2 * making, makingDir + "young": 0} {
		if err := os.MkdirAll(filepath.Join(all, name, dataDir), 0o700); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(all, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	list, err := h.store.List()
	if err == nil {
		err = h.store.Remove(list[0].ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(all)
	if err != nil || len(left) != 1 || left[0].Name() != makingDir+"young" {
		t.Errorf("%v is left, %v", left, err)
	}
}

// An ID finds a volume by its beginning.
func TestFind(t *testing.T) {
	h := newHouse(t)
	if _, _, err := h.use("one", Options{}); err != nil {
		t.Fatal(err)
	}
	list, _ := h.store.List()
	if v, err := h.store.Find(list[0].ID[:4]); err != nil || v.ID != list[0].ID {
		t.Errorf("%v, %v", v, err)
	}
	for _, id := range []string{list[0].ID[:3], "", "../" + list[0].ID} {
		_, err := h.store.Find(id)
		refused(t, err, sandbox.ErrNotFound, fmt.Sprintf("%s: there is none", sandbox.Quoted(id)))
	}
}
