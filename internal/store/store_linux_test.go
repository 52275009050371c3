// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bufio"
	"context"
	"encoding/json"
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

// Ordinary users. The second one has no user on this host, so that the name it
// gets in /tmp is this test's alone.
const (
	nobody  = 65534
	unknown = 61234
)

// theirs makes a directory of uid's that uid can get to.
func theirs(t *testing.T, uid int) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// helpers are what the test binary does when a test runs it again: as another
// user, in another mount namespace, or to be killed.
var helpers = map[string]func(args []string) error{
	"open": func(args []string) error {
		d, err := agreed(Options{Dir: args[0]})
		if err != nil {
			return err
		}
		fmt.Println(d.Path(), "|", d.Note())
		return nil
	},
	"hold": func(args []string) error {
		d, err := Open(Options{Dir: args[0]})
		if err != nil {
			return err
		}
		if _, err := d.Run(args[1]); err != nil {
			return err
		}
		fmt.Println("held")
		_, err = io.Copy(io.Discard, os.Stdin) // until the test kills us, or ends
		return err
	},
	"full": func(args []string) error {
		if err := tmpfs(args[0], "size=1m,mode=0700"); err != nil {
			return err
		}
		if _, err := agreed(Options{Dir: args[0] + "/below/state"}); err == nil {
			return errors.New("it was made there")
		}
		_, err := agreed(Options{Dir: args[0]})
		return err
	},
	"volume": func(args []string) error {
		container = func() string { return args[1] }
		if err := tmpfs(args[0], "mode=0777"); err != nil {
			return err
		}
		d, err := agreed(Options{Dir: args[0]})
		if err != nil {
			return err
		}
		defer d.Close()
		// As kubelet leaves it when it mounts the volume again for a group.
		if err := os.Chmod(d.Path(), 0o770|os.ModeSetgid); err != nil {
			return err
		}
		again, err := agreed(Options{Dir: args[0]})
		if err != nil {
			return err
		}
		defer again.Close()
		named, err := agreed(Options{Dir: args[0] + "/named"})
		if err != nil {
			return err
		}
		defer named.Close()
		info, err := os.Stat(again.Path())
		if err != nil {
			return err
		}
		// What others may enter is none of ours, wherever it lies.
		if err := os.Chmod(again.Path(), 0o755); err != nil {
			return err
		}
		if _, err := agreed(Options{Dir: args[0]}); !errors.Is(err, sandbox.ErrDenied) {
			return fmt.Errorf("one that is open to all: %v", err)
		}
		fmt.Println(strings.TrimPrefix(d.Path(), args[0]), info.Mode().Perm())
		return nil
	},
	"readonly": func(args []string) error {
		if err := tmpfs(args[0], "mode=0700,ro"); err != nil {
			return err
		}
		if _, err := agreed(Options{Dir: args[0] + "/below/state"}); err == nil {
			return errors.New("it was made there")
		}
		_, err := agreed(Options{Dir: args[0]})
		return err
	},
	"mounted": removeAcrossMount,
	"deep":    removeDeep,
}

// tmpfs mounts one in the helper's own mount namespace.
func tmpfs(dir, opts string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	var flags uintptr
	if strings.HasSuffix(opts, ",ro") {
		flags, opts = unix.MS_RDONLY, strings.TrimSuffix(opts, ",ro")
	}
	return unix.Mount("tmpfs", dir, "tmpfs", flags, opts)
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "store-helper" {
		if err := helpers[os.Args[2]](os.Args[3:]); err != nil {
			var e *sandbox.Error
			errors.As(err, &e)
			json.NewEncoder(os.Stderr).Encode(map[string]any{"error": err.Error(), "hint": sandbox.Hint(err),
				"denied": errors.Is(err, sandbox.ErrDenied), "unavailable": errors.Is(err, sandbox.ErrUnavailable)})
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone becomes other users, gives files away and mounts")
	}
}

// helper prepares the test binary as one of helpers. /proc/self/exe can be
// executed by a user who may not enter the directory it lies in.
func helper(t *testing.T, uid int, env []string, args ...string) *exec.Cmd {
	t.Helper()
	onlyRoot(t)
	cmd := exec.Command("/proc/self/exe", append([]string{"store-helper"}, args...)...)
	cmd.Env = env
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	} else {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	return cmd
}

// run returns what a helper printed and the error it ended with.
func run(t *testing.T, cmd *exec.Cmd) (stdout string, failure map[string]any) {
	t.Helper()
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if jerr := json.Unmarshal(exit.Stderr, &failure); jerr != nil {
			t.Fatalf("helper: %v: %s", err, exit.Stderr)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), failure
}

// hold starts a process that holds a run directory, and returns once it does.
func hold(t *testing.T, dir, id string) *exec.Cmd {
	t.Helper()
	cmd := helper(t, 0, nil, "hold", dir, id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("holder said %q, %v", line, err)
	}
	return cmd
}

// agreed is Open; what Look says before must be what comes of it.
func agreed(o Options) (*Dir, error) {
	path, looked := Look(o)
	d, err := Open(o)
	if err == nil {
		if path, _ = filepath.EvalSymlinks(path); looked != nil || path != d.Path() {
			return nil, errors.Join(fmt.Errorf("Open made %s, of which Look says %q, %v", d.Path(), path, looked), d.Close())
		}
		return d, nil
	}
	for _, kind := range []error{sandbox.ErrDenied, sandbox.ErrInvalid, sandbox.ErrUnavailable} {
		if errors.Is(looked, kind) && errors.Is(err, kind) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("Open says %v, and Look says %v", err, looked)
}

func mustOpen(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestOpenMakesAPrivateDirectory(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	path := filepath.Join(t.TempDir(), "a", "state")
	d := mustOpen(t, path)
	if d.Path() != path || d.Note() != "" {
		t.Errorf("Path %q, Note %q; want %q and none", d.Path(), d.Note(), path)
	}
	for _, p := range []string{path, filepath.Join(path, runs)} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want mode 0700", p, fi.Mode(), err)
		}
	}
	mustOpen(t, path) // and again
}

// TestRefused is the matrix of what may not be a state directory.
func TestRefused(t *testing.T) {
	onlyRoot(t)
	mk := func(t *testing.T, path string, mode os.FileMode, uid int) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Lchown(path, uid, -1)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(t *testing.T, to, path string, uid int) string {
		t.Helper()
		if err := errors.Join(os.Symlink(to, path), os.Lchown(path, uid, -1)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct {
		name  string
		setup func(t *testing.T, tmp string) string
		want  error // nil: allowed
		says  string
	}{
		{"foreign owner", func(t *testing.T, tmp string) string { return mk(t, tmp+"/s", 0o700, nobody) }, sandbox.ErrDenied, "another user"},
		{"group may enter", func(t *testing.T, tmp string) string { return mk(t, tmp+"/s", 0o710, 0) }, sandbox.ErrDenied, "open to other users"},
		{"others may read", func(t *testing.T, tmp string) string { return mk(t, tmp+"/s", 0o704, 0) }, sandbox.ErrDenied, "open to other users"},
		{"a link itself", func(t *testing.T, tmp string) string { return link(t, mk(t, tmp+"/real", 0o700, 0), tmp+"/s", 0) }, sandbox.ErrDenied, "symbolic link"},
		{"a link with a slash", func(t *testing.T, tmp string) string { return link(t, mk(t, tmp+"/real", 0o700, 0), tmp+"/s", 0) + "/" }, sandbox.ErrDenied, "symbolic link"},
		{"through another's link", func(t *testing.T, tmp string) string {
			mk(t, tmp+"/real", 0o755, 0)
			return link(t, "real", tmp+"/l", nobody) + "/s"
		}, sandbox.ErrDenied, "symbolic link"},
		{"through root's link in another's directory", func(t *testing.T, tmp string) string {
			mk(t, tmp+"/theirs", 0o755, nobody)
			return link(t, mk(t, tmp+"/real", 0o755, 0), tmp+"/theirs/l", 0) + "/s"
		}, sandbox.ErrDenied, "another user"},
		{"below another's directory", func(t *testing.T, tmp string) string { return mk(t, tmp+"/theirs", 0o755, nobody) + "/s" }, sandbox.ErrDenied, "another user"},
		{"below a directory for all", func(t *testing.T, tmp string) string { return mk(t, tmp+"/all", 0o777, 0) + "/s" }, sandbox.ErrDenied, "every user"},
		{"a file", func(t *testing.T, tmp string) string {
			if err := os.WriteFile(tmp+"/s", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return tmp + "/s"
		}, sandbox.ErrInvalid, "not a directory"},
		{"links in a ring", func(t *testing.T, tmp string) string {
			link(t, tmp+"/b", tmp+"/a", 0)
			return link(t, tmp+"/a", tmp+"/b", 0) + "/s"
		}, sandbox.ErrDenied, "symbolic link"},
		{"a name that is too long", func(t *testing.T, tmp string) string { return tmp + "/" + strings.Repeat("x", 300) }, sandbox.ErrInvalid, "too long"},
		{"through root's link", func(t *testing.T, tmp string) string {
			mk(t, tmp+"/real", 0o755, 0)
			return link(t, "real", tmp+"/l", 0) + "/s"
		}, nil, ""},
		{"below a sticky directory", func(t *testing.T, tmp string) string { return mk(t, tmp+"/all", 0o777|os.ModeSticky, 0) + "/s" }, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := tt.setup(t, t.TempDir())
			d, err := agreed(Options{Dir: path})
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				if real, err := filepath.EvalSymlinks(path); err != nil || real != d.Path() {
					t.Errorf("Path() = %q, want %q (%v)", d.Path(), real, err)
				}
				return
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Open = %v, want %v saying %q", err, tt.want, tt.says)
			}
			if sandbox.Hint(err) == "" {
				t.Errorf("no hint in %v", err)
			}
			if strings.Count(err.Error(), path) > 1 {
				t.Errorf("it says twice what it is about: %v", err)
			}
			if d != nil {
				t.Error("a directory came with the error")
			}
		})
	}
}

// A name that is no text would be another one where a level writes it down.
func TestNameIsText(t *testing.T) {
	dir := filepath.Join(theirs(t, os.Geteuid()), "a\xff")
	link := filepath.Join(filepath.Dir(dir), "link")
	check := func(name string) {
		t.Helper()
		d, err := Open(Options{Dir: name})
		if !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
			t.Errorf("%q: %v, %v", name, d, err)
		}
	}
	check(dir)
	if _, err := os.Lstat(dir); err == nil {
		t.Error("it was made all the same")
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(Options{Dir: link}); err == nil {
		t.Errorf("a link to it: %q", d.Path())
	}
}

func TestReadOnlyMakesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if _, err := Open(Options{Dir: path, ReadOnly: true}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Open = %v, want ErrNotFound", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	if _, err := Look(Options{Dir: path}); err != nil {
		t.Errorf("Look = %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	mustOpen(t, path)
	d, err := Open(Options{Dir: path, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestDiskRefusals(t *testing.T) {
	for name, says := range map[string]string{"full": "the disk is full", "readonly": "read-only file system"} {
		_, failure := run(t, helper(t, 0, nil, name, t.TempDir()))
		if failure["unavailable"] != true || !strings.Contains(failure["error"].(string), says) || failure["hint"] == "" {
			t.Errorf("%s: %v; want ErrUnavailable saying %q with a hint", name, failure, says)
		}
	}
}

// A volume of a container is open to all in it, and has a directory of ours. The same on a
// host is refused.
func TestVolume(t *testing.T) {
	out, failure := run(t, helper(t, 0, nil, "volume", t.TempDir(), "kubernetes"))
	if out != "/caisson -rwx------" {
		t.Errorf("%q, %v", out, failure)
	}
	if out, failure := run(t, helper(t, 0, nil, "volume", t.TempDir(), "")); failure["denied"] != true || !strings.Contains(failure["error"].(string), "open to other users") {
		t.Errorf("%q, %v", out, failure)
	}
}

func TestFreeSpace(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "s"))
	s, err := d.FreeSpace()
	if err != nil || s.Bytes < MinFree {
		t.Fatalf("FreeSpace = %+v, %v", s, err)
	}
	if err := d.Require(MinFree); err != nil {
		t.Errorf("Require(MinFree) = %v", err)
	}
	err = d.Require(1 << 60)
	if !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, unix.ENOSPC) || sandbox.Hint(err) == "" {
		t.Errorf("Require(2^60) = %v, want ErrUnavailable with a hint", err)
	}
}

func TestPlaces(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		euid int
		env  map[string]string
		want []string
	}{
		{"root", Options{}, 0, nil, []string{"/var/lib/caisson"}},
		{"root under sudo with the caller's home", Options{}, 0, map[string]string{"HOME": "/home/al", "XDG_STATE_HOME": "/home/al/.s", "XDG_RUNTIME_DIR": "/run/user/1000", "SUDO_UID": "1000"}, []string{"/var/lib/caisson"}},
		{"root told", Options{}, 0, map[string]string{"CAISSON_STATE": "/srv/c"}, []string{"/srv/c"}},
		{"option beats environment", Options{Dir: "/a"}, 0, map[string]string{"CAISSON_STATE": "/srv/c"}, []string{"/a"}},
		{"user", Options{}, 7, map[string]string{"HOME": "/home/al"}, []string{"/home/al/.local/state/caisson", "/tmp/caisson-7"}},
		{"user with XDG", Options{}, 7, map[string]string{"HOME": "/home/al", "XDG_STATE_HOME": "/x", "XDG_RUNTIME_DIR": "/run/user/7"}, []string{"/x/caisson", "/tmp/caisson-7", "/run/user/7/caisson"}},
		{"relative paths are ignored", Options{}, 7, map[string]string{"HOME": "al", "XDG_STATE_HOME": "x", "XDG_RUNTIME_DIR": "y"}, []string{"/tmp/caisson-7"}},
	}
	for _, tt := range tests {
		list, err := places(tt.o, tt.euid, func(k string) string { return tt.env[k] })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range list {
			got = append(got, p.path)
		}
		if strings.Join(got, " ") != strings.Join(tt.want, " ") {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestOrdinaryUser opens the default place as users with a home, with one
// that is not theirs, and with none.
func TestOrdinaryUser(t *testing.T) {
	onlyRoot(t)
	fallback := fmt.Sprintf("/tmp/caisson-%d", unknown)
	if _, err := os.Lstat(fallback); err == nil {
		t.Fatalf("%s exists already: remove it, this test makes its own", fallback)
	}
	t.Cleanup(func() { os.RemoveAll(fallback) })
	homeless := []string{"HOME=/nonexistent"}

	t.Run("home", func(t *testing.T) {
		home := theirs(t, nobody)
		out, failure := run(t, helper(t, nobody, []string{"HOME=" + home}, "open", ""))
		if want := home + "/.local/state/caisson |"; out != want || failure != nil {
			t.Errorf("got %q, %v; want %q", out, failure, want)
		}
	})
	t.Run("unwritable home", func(t *testing.T) {
		out, failure := run(t, helper(t, unknown, []string{"HOME=" + t.TempDir()}, "open", ""))
		if !strings.HasPrefix(out, fallback+" | there is no home") || failure != nil {
			t.Errorf("got %q, %v", out, failure)
		}
	})
	t.Run("no home", func(t *testing.T) {
		out, failure := run(t, helper(t, unknown, homeless, "open", ""))
		if !strings.HasPrefix(out, fallback+" | there is no home") || failure != nil {
			t.Errorf("got %q, %v", out, failure)
		}
	})
	os.RemoveAll(fallback)
	if err := os.Mkdir(fallback, 0o777); err != nil { // root's: foreign
		t.Fatal(err)
	}
	t.Run("fallback is another's", func(t *testing.T) {
		out, failure := run(t, helper(t, unknown, homeless, "open", ""))
		if failure["denied"] != true || out != "" {
			t.Errorf("got %q, %v; want denied", out, failure)
		}
		if left, err := os.ReadDir(fallback); err != nil || len(left) != 0 {
			t.Errorf("it was used: %v, %v", left, err)
		}
	})
	t.Run("fallback is another's, with a runtime directory", func(t *testing.T) {
		dir := theirs(t, unknown)
		out, failure := run(t, helper(t, unknown, append(homeless, "XDG_RUNTIME_DIR="+dir), "open", ""))
		if !strings.HasPrefix(out, dir+"/caisson | there is no home") || failure != nil {
			t.Errorf("got %q, %v", out, failure)
		}
	})
	t.Run("told to use another's", func(t *testing.T) {
		_, failure := run(t, helper(t, unknown, []string{"CAISSON_STATE=/root/x"}, "open", ""))
		if failure["unavailable"] != true {
			t.Errorf("got %v; want unavailable, without a fallback", failure)
		}
	})
}

func sweepAll(t *testing.T, d *Dir) []string {
	t.Helper()
	swept, err := d.Sweep(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return swept
}
