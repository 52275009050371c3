// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// hostPrograms are what the suite's scripts use, for levels that take an image and
// nothing else.
var hostPrograms = []string{"bash", "cat", "chmod", "cmp", "cp", "cut", "date", "dd", "df", "echo", "env", "expr", "false", "find", "getent", "grep", "head", "hostname",
	"id", "ln", "ls", "mkdir", "mkfifo", "mv", "nproc", "od", "printf", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "setsid", "sh",
	"sha256sum", "sleep", "sort", "stat", "stty", "tail", "tee", "touch", "tr", "true", "truncate", "tty", "uname", "unshare", "wc", "yes", "/usr/bin/python3"}

// onImage makes ready for fixtures that are made of an image.
func (s *suite) onImage(t *testing.T, h Harness) {
	t.Helper()
	s.programs, s.mountless, s.copies = hostImage(t.Context(), t, s.dir), !h.Copies, h.Copies
	if err := os.MkdirAll(filepath.Join(s.dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// hostImage is an image of this host's programs, made once.
func hostImage(ctx context.Context, t *testing.T, dir string) *image.Stored {
	t.Helper()
	layout := filepath.Join(dir, "host-layout")
	imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, append(hostPrograms, ctypes(t))...),
		imagetest.Tree(t, filepath.Dir(standard(t)), filepath.Dir(standard(t))[1:], 1<<30),
		imagetest.Layer(t, "etc/", "etc/passwd=root:x:0:0::/root:/bin/sh\n", "etc/group=root:x:0:\n", "etc/nsswitch.conf=hosts: files dns\n",
			"boot/", "data/", "media/", "mnt/", "opt/", "opt/a/", "srv/", "usr/local/", "usr/local/bin/", "usr/share/", "var/", "var/cache/", "var/lib/", "var/spool/", "var/tmp/", "var/log/", "var/mail/"),
	).Layout(layout)
	r, err := reference.Parse(layout)
	if err != nil {
		t.Fatal(err)
	}
	store, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := store.Get(ctx, r, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// standard is a file of Python's standard library.
func standard(t *testing.T) string {
	t.Helper()
	return hostPython(t, "import os; print(os.__file__)")
}

// ctypes is the part of it that needs a library.
func ctypes(t *testing.T) string {
	t.Helper()
	return hostPython(t, "import _ctypes; print(_ctypes.__file__)")
}

func hostPython(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-I", "-S", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// rootOfImage gives a Spec the image of this host's programs as its root.
func (s *suite) rootOfImage(ctx context.Context, spec *sandbox.Spec) (_ *fixture, done func(), err error) {
	store, err := image.OpenStore(filepath.Join(s.dir, "images"))
	if err != nil {
		return nil, nil, err
	}
	var targets []image.Target
	for _, sc := range spec.Scratch {
		targets = append(targets, image.Target{Path: sc.Target, Dir: true})
	}
	root, err := store.Root(ctx, s.programs, image.RootOptions{EROFS: s.caps.EROFS, Targets: targets})
	if err != nil {
		return nil, nil, err
	}
	spec.Root = root.Sandbox()
	done = func() { root.Close() }
	if n := spec.Network; n != nil && !s.mountless { // as the road does it
		name := filepath.Join(spec.StateDir, "resolv.conf")
		if err := os.WriteFile(name, []byte(image.ResolvConf(n.Gateway)), 0o644); err != nil {
			return nil, done, err
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, done, err
		}
		done = func() { f.Close(); root.Close() }
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: f, Name: name, Target: "/etc/resolv.conf"})
	}
	env := []string{"HOME=" + spec.User.Home, "LANG=C.UTF-8", "PATH=/usr/bin", "USER=" + spec.User.Name}
	return &fixture{spec: spec, env: env}, done, nil
}
