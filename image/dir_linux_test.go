// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// handle is a directory as hostpath would give it.
func handle(t *testing.T, dir string) *hostpath.Source {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { f.Close() })
	info, err := os.Stat(dir)
	must(t, err)
	return &hostpath.Source{File: f, Name: dir, Real: dir, Dir: info.IsDir()}
}

// whole is a tree with which nothing is wrong.
var whole = []string{"usr/bin/sh=", "bin->usr/bin", "lib->usr/lib", "proc/", "sys/", "dev/", "tmp/", "etc/passwd=x", "home/user/", "data/", "data/file=", "var/run->../run", "run/"}

func TestDir(t *testing.T) {
	dir, file := func(p string) Target { return Target{p, true} }, func(p string) Target { return Target{p, false} }
	home := []Target{dir("/home/user"), dir("/tmp")}
	tests := []struct {
		name    string
		more    []string
		gone    string
		targets []Target
		err     error
		says    string
	}{
		{name: "whole", targets: home},
		{name: "targets that exist", targets: append(home, file("/data/file"), dir("/data"), dir("/dev/shm"), file("/home/user/new"))},
		{name: "home is a link inside", gone: "home", more: []string{"home->var/home", "var/home/user/"}, targets: nil},
		{name: "absolute links for programs", gone: "bin", more: []string{"bin->/usr/bin"}},
		{name: "no proc", gone: "proc", err: sandbox.ErrInvalid, says: "/proc"},
		{name: "no tmp", gone: "tmp", err: sandbox.ErrInvalid, says: "/tmp"},
		{name: "no home", gone: "home/user", targets: home, err: sandbox.ErrInvalid, says: "/home/user"},
		{name: "no target", targets: []Target{dir("/new")}, err: sandbox.ErrInvalid, says: "/new"},
		{name: "no target file", targets: []Target{file("/new")}, err: sandbox.ErrInvalid, says: "/new"},
		{name: "target of the wrong kind", targets: []Target{file("/data")}, err: sandbox.ErrInvalid, says: "/data"},
		{name: "target through a link", targets: []Target{dir("/var/run")}, err: sandbox.ErrInvalid, says: "/var/run"},
		{name: "target in proc", targets: []Target{dir("/proc/1")}, err: sandbox.ErrInvalid, says: "/proc"},
		{name: "target with dots", targets: []Target{dir("/data/../etc")}, err: sandbox.ErrInvalid},

		{name: "dev is a link out", gone: "dev", more: []string{"dev->/dev"}, err: sandbox.ErrDenied, says: "/dev"},
		{name: "dev is a link inside", gone: "dev", more: []string{"dev->data"}, err: sandbox.ErrInvalid, says: "/dev"},
		{name: "proc is a link out", gone: "proc", more: []string{"proc->/proc"}, err: sandbox.ErrDenied, says: "/proc"},
		{name: "proc is a file", gone: "proc", more: []string{"proc="}, err: sandbox.ErrInvalid, says: "/proc"},
		{name: "sys is a link to a descriptor", gone: "sys", more: []string{"sys->/proc/self/fd/7"}, err: sandbox.ErrDenied, says: "/sys"},
		{name: "etc is a link out", gone: "etc", more: []string{"etc->/etc"}, err: sandbox.ErrDenied, says: "/etc"},
		{name: "etc leads out by dots", gone: "etc", more: []string{"etc->../../../../../../etc"}, err: sandbox.ErrDenied, says: "/etc"},
		{name: "home is a link out", gone: "home", more: []string{"home->/home"}, err: sandbox.ErrDenied, says: "/home"},
		{name: "home leads out over two links", gone: "home", more: []string{"home->a", "a->b", "b->/root"}, err: sandbox.ErrDenied, says: "/home"},
		{name: "home is a circle", gone: "home", more: []string{"home->home"}, err: sandbox.ErrDenied, says: "/home"},
		{name: "dev/null is a link", more: []string{"dev/null->/proc/sys/kernel/core_pattern"}, err: sandbox.ErrDenied, says: "/dev/null"},
		{name: "dev/pts/0 is a link", more: []string{"dev/pts/0->/etc/shadow"}, err: sandbox.ErrDenied, says: "/dev/pts/0"},
		{name: "dev/shm is a link", more: []string{"dev/shm->/dev/shm"}, err: sandbox.ErrDenied, says: "/dev/shm"},
		{name: "resolv.conf is a link", more: []string{"etc/resolv.conf->/run/systemd/resolve/stub-resolv.conf"}, err: sandbox.ErrDenied, says: "/etc/resolv.conf"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := fakeHost(t, whole...)
			if tt.gone != "" {
				must(t, os.RemoveAll(filepath.Join(at, tt.gone)))
			}
			for _, l := range tt.more {
				name, link, ok := strings.Cut(l, "->")
				must(t, os.MkdirAll(filepath.Join(at, filepath.Dir(name)), 0o755))
				switch {
				case ok:
					must(t, os.Symlink(link, filepath.Join(at, name)))
				case strings.HasSuffix(name, "/"):
					must(t, os.MkdirAll(filepath.Join(at, name), 0o755))
				default:
					must(t, os.WriteFile(filepath.Join(at, strings.TrimSuffix(name, "=")), nil, 0o644))
				}
			}
			before := list(t, at)
			r, err := Dir(t.Context(), handle(t, at), DirOptions{Targets: tt.targets})
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if err != nil && (sandbox.Hint(err) == "" || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%v (hint %q) does not name %s", err, sandbox.Hint(err), tt.says)
			}
			if diff := cmp.Diff(before, list(t, at)); diff != "" {
				t.Errorf("the tree was changed: %s", diff)
			}
			if err == nil {
				if r.Sandbox().Dir.Name() != at || len(r.Sandbox().Binds) != 0 {
					t.Errorf("got %+v", r.Sandbox())
				}
				must(t, r.Close())
			}
		})
	}
	if _, err := Dir(t.Context(), handle(t, filepath.Join(fakeHost(t, "file=x"), "file")), DirOptions{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a file: got %v", err)
	}
}

func TestDirToolchains(t *testing.T) {
	at := fakeHost(t, append([]string{"opt/go/"}, whole...)...)
	tool := handle(t, fakeHost(t, "bin/go="))
	tool.Real = "/opt/go"
	r, err := Dir(t.Context(), handle(t, at), DirOptions{Toolchains: []*hostpath.Source{tool}})
	must(t, err)
	defer r.Close()
	if r.Path[0] != "/opt/go/bin" || len(r.Sandbox().Binds) != 1 || r.Sandbox().Binds[0].Target != "/opt/go" {
		t.Errorf("got %v, %+v", r.Path, r.Sandbox().Binds)
	}
	tool.Real = "/opt/rust"
	if _, err := Dir(t.Context(), handle(t, at), DirOptions{Toolchains: []*hostpath.Source{tool}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a toolchain without a mountpoint: got %v", err)
	}
}

// TestAsNobody runs the other tests of this package as uid 65534, as a user
// without any rights would, with a cache of its own.
func TestAsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it is a user without rights already
	}
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	own, bin := filepath.Join(dir, "own"), filepath.Join(dir, "test")
	must(t, os.Mkdir(own, 0o755))
	must(t, os.Chown(own, 65534, 65534))
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(bin, self, 0o755))
	cmd := exec.Command(bin)
	cmd.Dir = own
	cmd.Env = append(os.Environ(), "TMPDIR="+own, "HOME="+own)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
