// SPDX-License-Identifier: Apache-2.0

//go:build unix

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

const valid = "version: 1\nlimits: {memory: 128MiB}\n"

// rootDir is a directory whose every ancestor is root's alone. /tmp is not:
// every user may write there.
func rootDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can lay out a root-owned tree")
	}
	dir, err := os.MkdirTemp("/var/lib", "caisson-config-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSystemIsRootsAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, dir, file string)
		want  string // in the error; empty is none
	}{
		"root's":                {func(*testing.T, string, string) {}, ""},
		"another user's":        {func(t *testing.T, _, f string) { must(t, os.Chown(f, 65534, 0)) }, "does not belong to root"},
		"writable by the group": {func(t *testing.T, _, f string) { must(t, os.Chmod(f, 0o664)) }, "mode 0664"},
		"writable by all":       {func(t *testing.T, _, f string) { must(t, os.Chmod(f, 0o666)) }, "mode 0666"},
		"directory of another":  {func(t *testing.T, d, _ string) { must(t, os.Chown(d, 65534, 0)) }, "does not belong to root"},
		"directory writable":    {func(t *testing.T, d, _ string) { must(t, os.Chmod(d, 0o777)) }, "mode 0777"},
		"link into a directory that all may write": {func(t *testing.T, _, f string) {
			other := filepath.Join(t.TempDir(), "p.yaml")
			must(t, os.WriteFile(other, []byte(valid), 0o644))
			must(t, os.Remove(f))
			must(t, os.Symlink(other, f))
		}, "can be written by others"},
		"with servers": {func(t *testing.T, _, f string) {
			must(t, os.WriteFile(f, []byte("version: 1\nservers: [{name: a, command: [s]}]\n"), 0o644))
		}, "bound nothing"},
		"directory in its place": {func(t *testing.T, _, f string) { must(t, os.Remove(f)); must(t, os.Mkdir(f, 0o755)) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(rootDir(t), "caisson")
			must(t, os.Mkdir(dir, 0o755))
			file := filepath.Join(dir, "policy.yaml")
			must(t, os.WriteFile(file, []byte(valid), 0o644))
			tc.spoil(t, dir, file)
			p, err := System(file)
			if tc.want == "" {
				if err != nil || p == nil || p.Limits.Memory != 128<<20 {
					t.Fatalf("got %v, %v", p, err)
				}
				return
			}
			if !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), tc.want) || sandbox.Hint(err) == "" {
				t.Fatalf("got %v (hint %q), want a refusal with %q", err, sandbox.Hint(err), tc.want)
			}
		})
	}
}

func TestNoSystemPolicy(t *testing.T) {
	p, err := System(filepath.Join(t.TempDir(), "none.yaml"))
	if p != nil || err != nil {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	must(t, os.WriteFile(good, []byte(valid), 0o644))
	must(t, os.WriteFile(bad, []byte("version: 1\nlimit: {}\n"), 0o644))
	if p, err := File(good); err != nil || p.Dir != dir {
		t.Errorf("good: %v, %v", p, err)
	}
	for name, kind := range map[string]error{bad: sandbox.ErrInvalid, dir: sandbox.ErrInvalid, filepath.Join(dir, "none"): sandbox.ErrNotFound} {
		if _, err := File(name); !errors.Is(err, kind) || sandbox.Hint(err) == "" {
			t.Errorf("%s: %v, want %v with a hint", name, err, kind)
		}
	}
}

// TestPipes has what a caller has open read, and nothing that has only a name waited
// for. A test that waits hangs.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for _, name := range []string{fifo, os.DevNull, "/dev/zero"} {
		if _, err := File(name); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := System(fifo); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("the system's is a pipe: %v", err)
	}
	wd, err := os.Getwd()
	must(t, err)
	for name, want := range map[string]string{"small": "", "endless": "it is longer than 256 KiB"} {
		r, w, err := os.Pipe()
		must(t, err)
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			defer w.Close()
			for text := valid; ; text = strings.Repeat("#\n", 4096) {
				if _, err := w.WriteString(text); err != nil || want == "" {
					return
				}
			}
		}()
		p, err := File("/dev/fd/" + strconv.Itoa(int(r.Fd())))
		r.Close()
		<-wrote
		switch {
		case want == "" && (err != nil || p.Dir != wd || p.Limits.Memory != 128<<20):
			t.Errorf("%s: %v, %v", name, p, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
