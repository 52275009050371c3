// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
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
}

// Nothing of what the guest may not see is on its disk: root inside reads the disk itself.
func TestCopiesLeaveOut(t *testing.T) {
	const canary = "KANARIENVOGEL"
	dir := t.TempDir()
	for _, name := range []string{"masked", "hidden/inner", "foreign", "closed/inner"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(canary), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, whose caisson reads what others own")
	}
	for _, name := range []string{"foreign", "closed"} {
		if err := errors.Join(os.Chown(filepath.Join(dir, name), 4242, 4242), os.Chmod(filepath.Join(dir, name), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	s := &sandbox.Spec{User: sandbox.DefaultUser(), Mounts: []sandbox.Mount{source(t, dir, "/w", sandbox.ReadOnly)}, Masks: []sandbox.Mask{{Target: "/w/masked"}, {Target: "/w/hidden", Dir: true}}}
	f, err := os.Create(filepath.Join(t.TempDir(), "copies"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := microvm.WriteCopies(t.Context(), s, f); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || strings.Contains(string(b), canary) {
		t.Errorf("the disk holds what is not to be seen (%v)", err)
	}
	s.Masks = nil
	if err := os.Chmod(filepath.Join(dir, "foreign"), 0o704); err != nil {
		t.Fatal(err)
	}
	root, err := copied(t, s)
	if err != nil || root.Children["0"].Children["foreign"].UID != 65534 || root.Children["0"].Children["foreign"].Size == 0 {
		t.Errorf("another user's file that all may read is %+v, %v", root.Children["0"].Children["foreign"], err)
	}
}

// Of a public mount what its owner alone may read is not on the disk.
func TestCopiesOfPublic(t *testing.T) {
	const canary = "KANARIENVOGEL"
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"etc/token": 0o600, "etc/group": 0o640, "closed/inner": 0o644, "walked/inner": 0o644, "bin/tool": 0o755} {
		file, text := filepath.Join(dir, name), canary
		if name == "bin/tool" {
			text = "public"
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	// Of a directory that all may list and not enter, and the other way, nothing is to be had.
	if err := errors.Join(os.Chmod(filepath.Join(dir, "closed"), 0o754), os.Chmod(filepath.Join(dir, "walked"), 0o751)); err != nil {
		t.Fatal(err)
	}
	mount := source(t, dir, "/opt/tool", sandbox.ReadOnly)
	mount.Public = true
	s := &sandbox.Spec{User: sandbox.DefaultUser(), Mounts: []sandbox.Mount{mount}}
	f, err := os.Create(filepath.Join(t.TempDir(), "copies"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := microvm.WriteCopies(t.Context(), s, f); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || strings.Contains(string(b), canary) || !strings.Contains(string(b), "public") {
		t.Errorf("the disk holds what is not public, or not what is (%v)", err)
	}
	root, err := copied(t, s)
	if err != nil {
		t.Fatal(err)
	}
	owner := uint32(65534)
	if os.Geteuid() == 0 {
		owner = 0
	}
	if n := root.Children["0"].Children["etc"].Children["token"]; n == nil || n.Size != 0 || n.UID != owner || n.UID == 1000 {
		t.Errorf("a file of its owner alone is %+v", n)
	}
}

// A start that fails half way says so, and closes what it has opened.
func TestStartFailsHalfWay(t *testing.T) {
	d := newDriver(t, microvm.Micro)
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	for first := true; ; first = false { // the first one opens what stays: the agent's program
		s := newSpec(t, func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{source(t, "/dev/null", "/a", sandbox.ReadOnly)} })
		before := files()
		if _, err := d.Start(t.Context(), s); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "neither a file nor a directory") {
			t.Errorf("%v", err)
		}
		if after := files(); !first {
			if after != before {
				t.Errorf("%d files were open, and %d are", before, after)
			}
			return
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
	for _, tt := range []struct{ script, want string }{
		{"cat /ro/a /cow/inner /etc/one /home/user/two", "text\ndeep\ntext\ntext\n"},
		{"cat /ro/outer 2>&1 | head -c 4", "cat:"},
		{"(echo x > /ro/a) 2>/dev/null || echo closed; (echo x > /ro/new) 2>/dev/null || echo closed; (echo x > /etc/one) 2>/dev/null || echo closed", "closed\nclosed\nclosed\n"},
		{"echo x > /cow/a && cat /cow/a && echo y > /cow/new && cat /cow/new && echo z > /home/user/two && cat /home/user/two", "x\ny\nz\n"},
		{"ls /ro/d 2>/dev/null; ls /copies 2>/dev/null; echo $?", "2\n"},
	} {
		if got := m.sh(tt.script); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.script, got, tt.want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "text\n" {
		t.Errorf("on the host it is %q, %v", b, err)
	}
	changesOf(t, m)
	if err := m.instance.(sandbox.Pauser).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	changesOf(t, m)
	if err := m.instance.(sandbox.Pauser).Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.sh("cat /cow/new"); got != "y\n" {
		t.Errorf("afterwards there is %q", got)
	}
}

// changesOf reads what was changed below /cow.
func changesOf(t *testing.T, m *machine) {
	t.Helper()
	read := m.instance.(sandbox.ChangeReader)
	var layer bytes.Buffer
	if err := read.ReadChanges(t.Context(), "/cow", &layer); err != nil {
		t.Fatal(err)
	}
	got := ""
	for in := tar.NewReader(&layer); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got += h.Name + ":" + string(b)
	}
	if got != "a:x\nnew:y\n" {
		t.Errorf("what was changed: %q", got)
	}
	full := errors.New("no more")
	if err := read.ReadChanges(t.Context(), "/cow", failing{full}); !errors.Is(err, full) {
		t.Errorf("a reader that takes no more: %v", err)
	}
	for _, target := range []string{"/ro", "/home/user/two", "/", ""} {
		if err := read.ReadChanges(t.Context(), target, &layer); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("the changes of %q: %v", target, err)
		}
	}
}

// failing is a writer that fails.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
