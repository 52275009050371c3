// SPDX-License-Identifier: Apache-2.0

package idmap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	owner   = 1234      // of the file, on the host
	private = 2_000_000 // the sandbox's
)

// The helper is this binary as another user. It works relative to descriptor
// 3, which is a detached mount or a plain directory.
func TestMain(m *testing.M) {
	switch op, name, _ := strings.Cut(os.Getenv("CAISSON_IDMAP_HELPER"), " "); op {
	case "":
		os.Exit(m.Run())
	case "read":
		fd, err := unix.Openat(3, name, unix.O_RDONLY, 0)
		exit(err)
		text, err := io.ReadAll(os.NewFile(uintptr(fd), name))
		exit(err)
		fmt.Print(string(text))
	case "create":
		_, err := unix.Openat(3, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		exit(err)
	}
	os.Exit(0)
}

func exit(err error) {
	if err != nil {
		fmt.Print(err)
		os.Exit(1)
	}
}

// as runs the helper as a user and returns what it printed.
func as(t *testing.T, uid uint32, dir *os.File, op, name string) (string, error) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"CAISSON_IDMAP_HELPER=" + op + " " + name}
	cmd.ExtraFiles = []*os.File{dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output()
	return string(out), err
}

// files makes a directory of owner's on dir, with one private file of owner's
// and one of another user's. The test binary must be runnable by others.
func files(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone makes files of other users")
	}
	dir := t.TempDir()
	if err := Supported(dir); err != nil {
		t.Skip(err)
	}
	for name, uid := range map[string]int{"mine": owner, "other": 4321} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("text of "+name), 0o600), os.Chown(path, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(dir, owner, owner), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { f.Close() })
	return f
}

func mapped(t *testing.T, source *os.File) *os.File {
	t.Helper()
	tree, err := Mount(source, Map{Host: owner, Shown: private}, Map{Host: owner, Shown: private})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func TestOwnersAreTranslated(t *testing.T) {
	dir := files(t)
	tree := mapped(t, dir)
	for _, tt := range []struct {
		name string
		uid  uint32
		via  *os.File
		file string
		ok   bool
	}{
		{"private uid through the mount", private, tree, "mine", true},
		{"private uid without it", private, dir, "mine", false},
		{"private uid, another's file", private, tree, "other", false},
		{"another uid through the mount", private + 1, tree, "mine", false},
		{"the host's owner through the mount", owner, tree, "mine", false},
		{"the host's owner without it", owner, dir, "mine", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := as(t, tt.uid, tt.via, "read", tt.file)
			if (err == nil) != tt.ok || (tt.ok && out != "text of "+tt.file) || (!tt.ok && out != "permission denied") {
				t.Errorf("read %q, %v; want success %v", out, err, tt.ok)
			}
		})
	}
	for file, want := range map[string]uint32{"mine": private, "other": 65534} {
		var st unix.Stat_t
		fd := int(tree.Fd())
		if err := unix.Fstatat(fd, file, &st, 0); err != nil || st.Uid != want || st.Gid != want {
			t.Errorf("%s is shown as %d:%d, %v; want %d", file, st.Uid, st.Gid, err, want)
		}
	}
}

func TestWritesBelongToTheOwner(t *testing.T) {
	dir := files(t)
	tree := mapped(t, dir)
	if out, err := as(t, private, tree, "create", "new"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir.Name(), "new"), &st); err != nil || st.Uid != owner || st.Gid != owner {
		t.Errorf("on the host it belongs to %d:%d, %v; want %d", st.Uid, st.Gid, err, owner)
	}
	// A user without a place in the map cannot leave files behind, not even
	// root: whom would they belong to?
	if out, err := as(t, 0, tree, "create", "root"); err == nil || !strings.Contains(out, "value too large") {
		t.Errorf("root made a file: %q, %v", out, err)
	}
}

func TestRefusals(t *testing.T) {
	dir := files(t)
	// A detached tree cannot even be cloned before 6.15; on a newer kernel the
	// second translation is what is refused. Unsupported both ways.
	if _, err := Mount(mapped(t, dir), Map{Host: private, Shown: 1}, Map{Host: private, Shown: 1}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a mount of a mapped mount: %v", err)
	}
	if err := Supported("/proc"); !errors.Is(err, sandbox.ErrUnsupported) || sandbox.Hint(err) == "" {
		t.Errorf("/proc: %v", err)
	}
	if err := Supported("/nonexistent"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	for _, m := range []Map{{Host: 1<<32 - 1}, {Shown: 1<<32 - 1}, {Host: 10, Count: 1<<32 - 5}} {
		if _, err := New([]Map{m}, []Map{{}}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

// The process that lends its namespace is gone when New returns, and so are
// its zombie and its descriptors.
func TestNewLeavesNothing(t *testing.T) {
	files(t)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	for range 3 {
		n, err := New([]Map{{Host: owner, Shown: private}}, []Map{{Host: owner, Shown: private}})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	children, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range children {
		if pids, _ := os.ReadFile(path); len(pids) > 0 {
			t.Errorf("children left: %s", pids)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root, which alone makes files of other users")
	}
	for b.Loop() {
		n, err := New([]Map{{Host: owner, Shown: private}}, []Map{{Host: owner, Shown: private}})
		if err != nil {
			b.Fatal(err)
		}
		n.Close()
	}
}

func TestOneFileWithoutSetuidAndDevices(t *testing.T) {
	dir := files(t)
	file, err := os.OpenFile(filepath.Join(dir.Name(), "mine"), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tree := mapped(t, file)
	var st unix.Stat_t
	if err := unix.Fstatat(int(tree.Fd()), "", &st, unix.AT_EMPTY_PATH); err != nil || st.Uid != private || st.Mode&unix.S_IFMT != unix.S_IFREG {
		t.Errorf("a file's mount: uid %d mode %o, %v", st.Uid, st.Mode, err)
	}
	var fs unix.Statfs_t
	const want = unix.ST_NOSUID | unix.ST_NODEV
	if err := unix.Fstatfs(int(tree.Fd()), &fs); err != nil || fs.Flags&want != want {
		t.Errorf("flags %#x, %v; want nosuid and nodev", fs.Flags, err)
	}
}
