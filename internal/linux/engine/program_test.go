// SPDX-License-Identifier: Apache-2.0

//go:build linux

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

// carry packs a real program.
func carry(t *testing.T) *Program {
	t.Helper()
	data, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	return pack(t, data)
}

func pack(t *testing.T, data []byte) *Program {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return &Program{Label: Label{Digest: hex.EncodeToString(sum[:]), Size: int64(len(data)), GVisor: "v0"}, Packed: z.EncodeAll(data, nil)}
}

// place makes a private directory and names the directory of a sandbox in it.
func place(t *testing.T) (dir, stateDir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "sbx")
}

// where opens p, executes what it got as a driver does, and says where it lies.
func where(t *testing.T, p *Program, stateDir string) string {
	t.Helper()
	f, err := p.Open(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Run(); err != nil {
		t.Errorf("it cannot be executed: %v", err)
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func inMemory(name string) bool { return strings.HasPrefix(name, "/memfd:caisson-engine") }

func TestKeptOnceForAll(t *testing.T) {
	p := carry(t)
	dir, stateDir := place(t)
	first := where(t, p, stateDir)
	if first != filepath.Join(dir, nameOf(p.Label)) {
		t.Fatalf("it lies at %s", first)
	}
	before, err := os.Stat(first)
	if err != nil || before.Mode() != mode {
		t.Fatalf("%v, %v", before, err)
	}
	again := carry(t) // another process's
	if got := where(t, again, filepath.Join(dir, "other")); got != first {
		t.Errorf("the second time it lies at %s", got)
	}
	after, err := os.Stat(first)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("it was made anew (%v)", err)
	}
}

// What was not put there by this user, whole, is not executed.
func TestNotKept(t *testing.T) {
	label := carry(t).Label
	for name, prepare := range map[string]func(t *testing.T, dir string) error{
		"directory that others read": func(t *testing.T, dir string) error { return os.Chmod(dir, 0o755) },
		"no directory":               func(t *testing.T, dir string) error { return os.Remove(dir) },
		"directory is a link": func(t *testing.T, dir string) error {
			return errors.Join(os.Rename(dir, dir+"2"), os.Symlink(dir+"2", dir))
		},
		"program is a link": func(t *testing.T, dir string) error {
			return os.Symlink("/bin/true", filepath.Join(dir, nameOf(label)))
		},
		"program is a FIFO": func(t *testing.T, dir string) error {
			return unix.Mkfifo(filepath.Join(dir, nameOf(label)), mode)
		},
		"program is too short": func(t *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, nameOf(label)), []byte("#!/bin/false\n"), mode)
		},
		"program may be written": func(t *testing.T, dir string) error {
			data, err := os.ReadFile("/bin/true")
			return errors.Join(err, os.WriteFile(filepath.Join(dir, nameOf(label)), data, 0o755))
		},
		"somebody else's program": func(t *testing.T, dir string) error {
			if os.Geteuid() != 0 {
				t.Skip("needs root, which alone gives files away")
			}
			data, err := os.ReadFile("/bin/true")
			name := filepath.Join(dir, nameOf(label))
			return errors.Join(err, os.WriteFile(name, data, mode), os.Chown(name, 65534, 65534))
		},
		"somebody else's directory": func(t *testing.T, dir string) error {
			if os.Geteuid() != 0 {
				t.Skip("needs root, which alone gives files away")
			}
			return os.Chown(dir, 65534, 65534)
		},
		"somebody else is at it": func(t *testing.T, dir string) error {
			f, err := os.Create(filepath.Join(dir, lockName))
			if err != nil {
				return err
			}
			t.Cleanup(func() { f.Close() })
			return unix.Flock(int(f.Fd()), unix.LOCK_EX)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, stateDir := place(t)
			if err := prepare(t, dir); err != nil {
				t.Fatal(err)
			}
			p := carry(t)
			first := where(t, p, stateDir)
			if !inMemory(first) {
				t.Errorf("%s was executed", first)
			}
			if again := where(t, p, stateDir); !inMemory(again) {
				t.Errorf("the second time %s was executed", again)
			}
		})
	}
	t.Run("no state directory", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if err := os.Chmod(".", 0o700); err != nil {
			t.Fatal(err)
		}
		if name := where(t, carry(t), ""); !inMemory(name) {
			t.Errorf("%s was executed", name)
		}
	})
}

func TestNoExec(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir, stateDir := place(t)
	if err := threads.Ending(func() error {
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("t", dir, "tmpfs", unix.MS_NOEXEC, "mode=0700")); err != nil {
			return err
		}
		f, err := carry(t).Open(stateDir)
		if err != nil {
			return err
		}
		defer f.Close()
		name, err := os.Readlink("/proc/thread-self/fd/" + strconv.Itoa(int(f.Fd())))
		if err == nil && !inMemory(name) {
			err = errors.New("it lies at " + name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasPackedIsUnpacked(t *testing.T) {
	for name, change := range map[string]func(p *Program){
		"cut off":      func(p *Program) { p.Packed = p.Packed[:len(p.Packed)/2] },
		"another":      func(p *Program) { p.Packed = pack(t, []byte("#!/bin/false\n")).Packed },
		"longer":       func(p *Program) { p.Label.Size-- },
		"shorter":      func(p *Program) { p.Label.Size++ },
		"wrong digest": func(p *Program) { p.Label.Digest = strings.Repeat("0", 64) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, stateDir := place(t)
			p := carry(t)
			change(p)
			if f, err := p.Open(stateDir); err == nil {
				t.Errorf("%s was opened", f.Name())
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*engine*")); !slices.Equal(left, []string{filepath.Join(dir, lockName)}) {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	dir, stateDir := place(t)
	// What a process that died was making.
	if err := os.WriteFile(filepath.Join(dir, unready), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		p := carry(t) // as if of another process: the lock is the file's
		all.Go(func() { where(t, p, stateDir) })
	}
	all.Wait()
	if name := where(t, carry(t), stateDir); inMemory(name) {
		t.Error("nobody has kept it")
	}
	if _, err := os.Stat(filepath.Join(dir, unready)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not ready is left: %v", err)
	}
}

func TestOldVersionsGo(t *testing.T) {
	dir, stateDir := place(t)
	var want []string
	for i := range others + 2 {
		p := pack(t, []byte("version "+strconv.Itoa(i)))
		f, err := p.Open(stateDir)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		used := time.Now().Add(time.Duration(i-10) * 24 * time.Hour)
		name := filepath.Join(dir, nameOf(p.Label))
		if err := os.Chtimes(name, used, used); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	// The oldest that is left is used again, which counts.
	left := func() []string {
		l, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
		slices.Sort(l)
		return l
	}
	if len(left()) != others+1 {
		t.Fatalf("there are %q", left())
	}
	f, err := pack(t, []byte("version 1")).Open(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	p := carry(t)
	where(t, p, stateDir)
	want = append(slices.Concat(want[1:2], want[3:]), filepath.Join(dir, nameOf(p.Label)))
	slices.Sort(want)
	if !slices.Equal(left(), want) {
		t.Errorf("kept %q, want %q", left(), want)
	}
}

func TestLabel(t *testing.T) {
	l := Label{Digest: strings.Repeat("0a", 32), Size: 17, GVisor: "v0.0.0-20260905035102-160fafc42237"}
	if got, err := ParseLabel(l.String()); err != nil || got != l {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "x 1 v", strings.Repeat("0", 62) + " 1 v", l.Digest + " 0 v", l.Digest + " -1 v", l.Digest + " x v", l.Digest + " 1", l.String() + "more"} {
		if got, err := ParseLabel(bad); err == nil {
			t.Errorf("ParseLabel(%q) = %v", bad, got)
		}
	}
}
