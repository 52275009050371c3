// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// source opens what is to be mounted, as the pipeline does.
func source(t testing.TB, path, target string, access sandbox.Access) sandbox.Mount {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Mount{Source: f, Name: path, Target: target, Access: access, Dir: info.IsDir()}
}

// hostDir has one of each kind of file.
func hostDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{filepath.Join(dir, "a"): "text\n", filepath.Join(dir, "d/e/f"): "deep\n", outside: "secret\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"inner": "d/e/f", "outer": outside} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copied(t testing.TB, s *sandbox.Spec) (*fstree.Node, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "copies"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := microvm.WriteCopies(t.Context(), s, f); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return fstree.ReadEROFS(f, info.Size())
}

func TestCopies(t *testing.T) {
	dir := hostDir(t)
	s := &sandbox.Spec{User: sandbox.DefaultUser(), Mounts: []sandbox.Mount{source(t, dir, "/a", sandbox.ReadOnly), source(t, filepath.Join(dir, "a"), "/b", sandbox.ReadOnly)}}
	root, err := copied(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(root.Children["0"].Names(), " "); got != "a d inner outer" {
		t.Errorf("it holds %s", got)
	}
	if n := root.Children["0"].Children["outer"]; n.Kind != fstree.Link || !strings.HasSuffix(n.Target, "/secret") {
		t.Errorf("a link that leads out is %+v: it must lead nowhere inside", n)
	}
	for _, n := range []*fstree.Node{root.Children["1"], root.Children["0"].Children["a"]} {
		if n.Kind != fstree.File || n.Size != 5 || n.Mode != 0o640 || n.UID != 1000 {
			t.Errorf("a file is %+v", n)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "a"), 4242, 4242); err != nil {
			t.Fatal(err)
		}
		if root, err = copied(t, s); err != nil || root.Children["0"].Children["a"].UID != 65534 {
			t.Errorf("another user's file is %+v, %v", root.Children["0"].Children["a"], err)
		}
	}
}

func TestCopiesAreBounded(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	f, err := os.Create(large)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1<<30 + 1); err != nil {
		t.Fatal(err)
	}
	deep := t.TempDir()
	if err := os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", 70)), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ path, want string }{
		"a large file": {large, "more than 1 GiB"}, "a deep tree": {deep, "64 directories deep"}, "a device": {"/dev/null", "neither a file nor a directory"},
	} {
		_, err := copied(t, &sandbox.Spec{User: sandbox.DefaultUser(), Mounts: []sandbox.Mount{source(t, tt.path, "/a", sandbox.ReadOnly)}})
		if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestMounts shows copies to a guest: one that cannot be changed, and ones whose changes stay
// in the machine.
func TestMounts(t *testing.T) {
	d := newDriver(t, microvm.Micro)
	dir := hostDir(t)
	m := start(t, d, newSpec(t, func(s *sandbox.Spec) {
		s.Mounts = []sandbox.Mount{
			source(t, dir, "/ro", sandbox.ReadOnly), source(t, dir, "/cow", sandbox.CopyOnWrite), source(t, filepath.Join(dir, "a"), "/etc/one", sandbox.ReadOnly), source(t, filepath.Join(dir, "a"), "/home/user/two", sandbox.CopyOnWrite),
		}
		s.Masks = []sandbox.Mask{{Target: "/ro/d", Dir: true}}
	}))
	for script, want := range map[string]string{
		"cat /ro/a /cow/inner /etc/one /home/user/two": "text\ndeep\ntext\ntext\n",
		"cat /ro/outer 2>&1 | head -c 4":               "cat:",
		"(echo x > /ro/a) 2>/dev/null || echo closed; (echo x > /ro/new) 2>/dev/null || echo closed; (echo x > /etc/one) 2>/dev/null || echo closed": "closed\nclosed\nclosed\n",
		"echo x > /cow/a && cat /cow/a && echo y > /cow/new && cat /cow/new && echo z > /home/user/two && cat /home/user/two":                        "x\ny\nz\n",
		"ls /ro/d 2>/dev/null; ls /copies 2>/dev/null; echo $?":                                                                                      "2\n",
	} {
		if got := m.sh(script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "text\n" {
		t.Errorf("on the host it is %q, %v", b, err)
	}
}
