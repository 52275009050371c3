// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// handle opens a mount source as the session does.
func handle(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sh runs a script in spec and returns its stdout and stderr together.
func sh(t *testing.T, spec *sandbox.Spec, script string) string {
	t.Helper()
	var out bytes.Buffer
	res, err := gvisor.New(gvisor.Options{DebugDir: os.Getenv("DBG")}).Run(t.Context(), spec, &sandbox.Exec{
		Argv: []string{"sh", "-c", "exec 2>&1; " + script}, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode == nil {
		t.Fatalf("result %+v, output %q", res, out.String())
	}
	return out.String()
}

// project is a directory as an operator has it: private to its owner.
func project(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "project")
	for name, content := range map[string]string{"data.csv": "1,2\n", ".env": "KEY=canary\n", "sub/.env": "KEY=canary\n", "private/key": "canary\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own(t, dir)
	return dir
}

// own gives dir to a user who is neither root nor the sandbox's.
func own(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.Walk(dir, func(name string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, 4711, 4712)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMounts(t *testing.T) {
	const try = `cat p/data.csv; stat -c %u p/data.csv; echo new > p/new && cat p/new; echo x >> p/data.csv; ls p`
	for _, tc := range []struct {
		access sandbox.Access
		want   string
		kept   bool // what was written is on the host
	}{
		{sandbox.ReadOnly, "1,2\n1000\nsh: 1: cannot create p/new: Read-only file system\nsh: 1: cannot create p/data.csv: Read-only file system\ndata.csv\nprivate\nsub\n", false},
		{sandbox.CopyOnWrite, "1,2\n1000\nnew\ndata.csv\nnew\nprivate\nsub\n", false},
		{sandbox.ReadWrite, "1,2\n1000\nnew\ndata.csv\nnew\nprivate\nsub\n", true},
	} {
		t.Run(tc.access.String(), func(t *testing.T) {
			dir := project(t)
			spec := fixture(t)
			spec.Mounts = []sandbox.Mount{{Source: handle(t, dir), Name: dir, Target: "/home/user/p", Access: tc.access, Dir: true}}
			if got := sh(t, spec, try); got != tc.want {
				t.Errorf("output %q, want %q", got, tc.want)
			}
			data, err := os.ReadFile(filepath.Join(dir, "new"))
			if kept := err == nil && string(data) == "new\n"; kept != tc.kept {
				t.Errorf("the new file on the host: %q, %v; want it kept: %v", data, err, tc.kept)
			}
			old, _ := os.ReadFile(filepath.Join(dir, "data.csv"))
			if changed := string(old) != "1,2\n"; changed != tc.kept {
				t.Errorf("data.csv on the host is now %q; want it changed: %v", old, tc.kept)
			}
			if tc.kept && os.Geteuid() == 0 {
				var st unix.Stat_t
				if err := unix.Stat(filepath.Join(dir, "new"), &st); err != nil || st.Uid != 4711 || st.Gid != 4712 {
					t.Errorf("the new file belongs to %d:%d, %v; want the directory's owner", st.Uid, st.Gid, err)
				}
			}
		})
	}
}

func TestOneFileAlone(t *testing.T) {
	dir := project(t)
	spec := fixture(t)
	spec.Mounts = []sandbox.Mount{
		{Source: handle(t, filepath.Join(dir, "data.csv")), Name: "data.csv", Target: "/home/user/data.csv"},
		{Source: handle(t, filepath.Join(dir, "sub")), Name: "sub", Target: "/deep/down/sub", Dir: true},
	}
	got := sh(t, spec, `ls -A; cat data.csv; ls -A /deep/down/sub; ls /deep; ls /etc /home`)
	if want := "data.csv\n1,2\n.env\ndown\n/etc:\n\n/home:\nuser\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}

func TestMasks(t *testing.T) {
	for _, access := range []sandbox.Access{sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite} {
		t.Run(access.String(), func(t *testing.T) {
			dir := project(t)
			spec := fixture(t)
			spec.Mounts = []sandbox.Mount{{Source: handle(t, dir), Name: dir, Target: "/home/user/p", Access: access, Dir: true}}
			spec.Masks = []sandbox.Mask{{Target: "/home/user/p/.env"}, {Target: "/home/user/p/sub/.env"}, {Target: "/home/user/p/private", Dir: true}}
			got := sh(t, spec, `cat p/.env p/sub/.env p/private/key; ls p/private; mv p/.env p/seen; cat p/seen; mv p/sub p/moved; cat p/moved/.env; mv p/private p/open; cat p/open/key; rm -f p/.env; cat p/.env; ln p/.env p/link; cat p/link; echo done`)
			if bytes.Contains([]byte(got), []byte("canary")) || !bytes.HasSuffix([]byte(got), []byte("done\n")) {
				t.Errorf("hidden content came out, or the script did not end: %q", got)
			}
		})
	}
}

func TestMountpointInsideAMountMustExist(t *testing.T) {
	dir := project(t)
	spec := fixture(t)
	spec.Mounts = []sandbox.Mount{
		{Source: handle(t, dir), Name: dir, Target: "/home/user/p", Access: sandbox.ReadWrite, Dir: true},
		{Source: handle(t, dir), Name: dir, Target: "/home/user/p/missing", Dir: true},
	}
	_, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"true"}, Dir: "/"})
	if err == nil {
		t.Fatal("a mountpoint was made in the operator's directory")
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("the host directory has a new entry")
	}
}

// TestNoSetIDBitsOnTheHost: a set-user-id program of the directory's owner
// would be a way for any user of the host to become the owner.
func TestNoSetIDBitsOnTheHost(t *testing.T) {
	dir := project(t)
	spec := fixture(t)
	spec.Mounts = []sandbox.Mount{{Source: handle(t, dir), Name: dir, Target: "/home/user/p", Access: sandbox.ReadWrite, Dir: true}}
	got := sh(t, spec, `cd p; cp /bin/true a; chmod 4755 a; chmod g+s a; chmod 2755 sub; mkdir -m 2777 d; install -m 6755 /bin/true b
python3 -c '
import os
for f in [lambda: os.open("c", os.O_CREAT|os.O_WRONLY, 0o4755), lambda: os.mknod("e", 0o104755), lambda: os.fchmod(os.open("data.csv", os.O_RDWR), 0o6644)]:
    try: f()
    except OSError as err: print(err.strerror)
'
chmod 755 a && echo usual modes work`)
	if !strings.HasSuffix(got, "usual modes work\n") {
		t.Errorf("output %q", got)
	}
	err := filepath.Walk(dir, func(name string, info os.FileInfo, err error) error {
		if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s has mode %v on the host", name, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOverThePartsOfARoot mounts over a directory that is a mount itself: the later one
// is what there is.
func TestOverThePartsOfARoot(t *testing.T) {
	dir := t.TempDir()
	spec := fixture(t)
	spec.Mounts = []sandbox.Mount{{Source: handle(t, dir), Name: dir, Target: "/usr", Dir: true}}
	res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/usr/bin/true"}, Dir: "/usr"})
	if err != nil || res.ExitCode == nil || *res.ExitCode != 127 {
		t.Errorf("%+v, %v; want nothing in /usr", res, err)
	}
}

// TestStateInRun: a state directory below /run, where a privileged shim has what is its
// own, may have any name, too.
func TestStateInRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: an ordinary user's shims have no stage")
	}
	for _, name := range []string{"0", "1", "g", "bundle", "scratch0", "exe", "start"} {
		t.Run(name, func(t *testing.T) {
			top := filepath.Join("/run", name)
			if err := os.Mkdir(top, 0o700); err == nil {
				t.Cleanup(func() { os.Remove(top) })
			}
			state, err := os.MkdirTemp(top, "caisson-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(state) })
			spec := fixture(t)
			spec.StateDir = filepath.Join(state, "run")
			if err := os.Mkdir(spec.StateDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if got := sh(t, spec, `echo text > f; cat f`); got != "text\n" {
				t.Errorf("output %q", got)
			}
			if left, err := os.ReadDir(top); err != nil || len(left) != 1 {
				t.Errorf("%d entries, %v; want the state directory alone", len(left), err)
			}
		})
	}
}
