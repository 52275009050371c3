// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// fixture is a home folder with secrets, a state directory, and Options that
// know of them and of nothing of the person who runs the test.
type fixture struct {
	dir, home string
	opts      Options
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := &fixture{dir: dir, home: filepath.Join(dir, "people/alice")}
	for _, d := range []string{".ssh/keys", ".aws", ".config/gcloud", ".config/other", "project/sub", ".local/state/caisson/runs"} {
		must(t, os.MkdirAll(filepath.Join(w.home, d), 0o755))
	}
	for _, f := range []string{".ssh/id_rsa", ".netrc", "project/data.csv", ".bashrc", ".config/other/x", ".local/state/caisson/db"} {
		must(t, os.WriteFile(filepath.Join(w.home, f), []byte("x"), 0o600))
	}
	passwd := filepath.Join(dir, "passwd")
	must(t, os.WriteFile(passwd, []byte("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::"+w.home+":/bin/sh\nshort:line\n"), 0o644))
	agent := filepath.Join(dir, "agent/x/S.agent")
	must(t, os.MkdirAll(filepath.Dir(agent), 0o755))
	l, err := net.Listen("unix", agent)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	env := map[string]string{"SSH_AUTH_SOCK": agent, "DBUS_SESSION_BUS_ADDRESS": "unix:path=" + agent + ",guid=1"}
	w.opts = Options{StateDir: filepath.Join(w.home, ".local/state/caisson"), Purpose: "mount", passwd: passwd,
		getenv: func(k string) string { return env[k] }}
	return w
}

func (w *fixture) path(p string) string { return filepath.Join(w.dir, p) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check opens path and wants an error of the given kind that helps, or none.
func check(t *testing.T, path string, o Options, want error) error {
	t.Helper()
	src, err := Open(path, o)
	if err == nil {
		defer src.Close()
	}
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Errorf("%q: got %v, want %v", path, err, want)
		return err
	}
	var e *sandbox.Error
	if err != nil && (!errors.As(err, &e) || e.Hint == "" || e.Problem == "" || want == sandbox.ErrDenied && !strings.HasPrefix(e.Rule, "built-in: ")) {
		t.Errorf("%q: %v does not help (hint %q)", path, err, sandbox.Hint(err))
	}
	return err
}

// TestForbidden is the list of bad input. never says that the
// operator's explicit word does not help either.
func TestForbidden(t *testing.T) {
	w := newFixture(t)
	must(t, os.Symlink(w.home, w.path("to-home")))
	must(t, os.Symlink("people/alice/.ssh", w.path("to-ssh")))
	must(t, os.Symlink("/etc", w.path("to-etc")))
	must(t, os.Symlink("id_rsa", filepath.Join(w.home, ".ssh/link")))
	must(t, os.Link(filepath.Join(w.home, ".netrc"), w.path("hard-netrc")))
	must(t, os.Link(filepath.Join(w.home, ".ssh/id_rsa"), w.path("hard-key")))
	must(t, syscall.Mkfifo(w.path("fifo"), 0o600))
	must(t, os.Chdir(w.home+"/project"))
	t.Cleanup(func() { os.Chdir("/") })

	tests := []struct {
		path  string
		never bool
	}{
		{"/", true}, {"//", true}, {"/.", true}, {"/etc/..", true}, {"/etc", false}, {"/etc/", false}, {"/etc/hosts", false}, {"/usr/../etc/./passwd", false},
		{"/proc", true}, {"/proc/self", true}, {"/proc/cmdline", true}, {"/sys", true}, {"/sys/kernel", true}, {"/dev", true}, {"/dev/shm", true}, {"/dev/null", true},
		{"/run", true}, {"/var/run", true}, {"/run/lock", true}, {"/var", false}, {"/var/lib", false}, {"/boot", false}, {"/home", false},
		{"/root", false},
		{w.home, true}, {w.home + "/", true}, {w.home + "/.", true}, {w.home + "/project/..", true}, {"..", true}, {w.path("to-home"), true}, {w.path("to-home/"), true},
		{w.home + "/.ssh", false}, {w.home + "/.ssh/", false}, {w.home + "/.ssh/keys", false}, {w.home + "/.ssh/id_rsa", false}, {w.home + "/.ssh/link", false},
		{w.path("to-ssh"), false}, {w.path("to-ssh/keys"), false}, {w.path("to-etc"), false}, {w.path("to-etc/hosts"), false}, {"../.ssh/id_rsa", false},
		{w.home + "/.aws", false}, {w.home + "/.config/gcloud", false}, {w.home + "/.config", false}, {w.home + "/.netrc", false},
		{w.path("hard-netrc"), false}, {w.path("hard-key"), false},
		{w.opts.StateDir, true}, {w.opts.StateDir + "/runs", true}, {w.opts.StateDir + "/db", true}, {w.home + "/.local", true}, {w.home + "/.local/state", true},
		{w.path("people"), true}, {w.dir, true}, {filepath.Dir(w.dir), true},
		{w.path("agent/x/S.agent"), true}, {w.path("agent/x"), true}, {w.path("agent"), true},
		{w.path("fifo"), true},
	}
	for _, tt := range tests {
		err := check(t, tt.path, w.opts, sandbox.ErrDenied)
		if strings.Contains(sandbox.Hint(err), "dangerous") == tt.never {
			t.Errorf("%s: an override that does not help is named, or one that does is not: %s", tt.path, sandbox.Hint(err))
		}
		o := w.opts
		o.AllowDangerous = true
		want := error(nil)
		if tt.never {
			want = sandbox.ErrDenied
		}
		err = check(t, tt.path, o, want)
		if strings.Contains(sandbox.Hint(err), "dangerous") {
			t.Errorf("%s: the hint names an override that does not help: %s", tt.path, sandbox.Hint(err))
		}
	}
	for _, fine := range []string{w.home + "/project", ".", w.home + "/project/sub/..", w.home + "/project/data.csv", w.home + "/.config/other", w.home + "/.bashrc", "/usr", "/usr/share"} {
		check(t, fine, w.opts, nil)
	}
	o := w.opts
	o.Write = true
	for _, runs := range []string{"/usr", "/usr/bin", w.home + "/.bashrc", w.home + "/.config/other"} {
		check(t, runs, o, sandbox.ErrDenied)
	}
	check(t, w.home+"/project", o, nil)
}

func TestForbiddenSentence(t *testing.T) {
	w := newFixture(t)
	for path, want := range map[string]string{
		w.home + "/.ssh/id_rsa": "mount ~/.ssh/id_rsa: it lies in ~/.ssh, which is refused, because it holds SSH keys",
		w.home + "/.ssh":        "mount ~/.ssh: ~/.ssh is refused, because it holds SSH keys",
		w.home:                  "mount ~: ~ is refused, because it is a home folder",
		"/etc":                  "mount /etc: /etc is refused, because it holds the host's accounts and configuration",
		w.path("people"):        "mount " + w.path("people") + ": it contains " + w.opts.StateDir + ", which is refused, because it holds caisson's own state and records",
	} {
		_, err := Open(path, w.opts)
		want = strings.ReplaceAll(want, "~", w.home)
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestBadNames(t *testing.T) {
	w := newFixture(t)
	must(t, os.Symlink("loop", w.path("loop")))
	f, err := os.Open(w.home + "/project/data.csv")
	must(t, err)
	defer f.Close()
	for name, tt := range map[string]struct {
		path string
		want error
	}{
		"empty":             {"", sandbox.ErrInvalid},
		"NUL":               {w.home + "/project\x00/x", sandbox.ErrInvalid},
		"newline":           {w.home + "/pro\nject", sandbox.ErrInvalid},
		"escape":            {w.home + "/\x1b[2J", sandbox.ErrInvalid},
		"C1 control":        {w.home + "/\u009b2J", sandbox.ErrInvalid},
		"not UTF-8":         {w.home + "/\xff", sandbox.ErrInvalid},
		"long":              {"/" + strings.Repeat("x/", 2048), sandbox.ErrInvalid},
		"long component":    {"/" + strings.Repeat("x", 256), sandbox.ErrInvalid},
		"missing":           {w.home + "/nothing", sandbox.ErrNotFound},
		"tilde":             {"~/project", sandbox.ErrNotFound},
		"file as directory": {w.home + "/project/data.csv/", sandbox.ErrNotFound},
		"loop":              {w.path("loop"), sandbox.ErrInvalid},
		"descriptor":        {fmt.Sprintf("/proc/self/fd/%d", f.Fd()), sandbox.ErrInvalid},
		"another's root":    {"/proc/1/root/usr", sandbox.ErrInvalid},
		"working directory": {"/proc/self/cwd", sandbox.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(t, tt.path, w.opts, tt.want)
			if err != nil && strings.ContainsAny(err.Error(), "\n\x1b\x00\u009b") {
				t.Errorf("control characters reach the terminal: %q", err)
			}
		})
	}
}

func TestSourceSaysWhatItIs(t *testing.T) {
	w := newFixture(t)
	must(t, os.Symlink("people/alice/project/sub/../data.csv", w.path("link")))
	src, err := Open(w.path("link"), w.opts)
	must(t, err)
	defer src.Close()
	var st unix.Stat_t
	must(t, unix.Stat(w.home+"/project/data.csv", &st))
	if src.Name != w.path("link") || src.File.Name() != src.Real || src.Real != w.home+"/project/data.csv" || src.Dir || src.Dev != st.Dev || src.Ino != st.Ino || src.UID != st.Uid || src.GID != st.Gid {
		t.Errorf("got %+v", src)
	}
	flags, err := unix.FcntlInt(src.File.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH == 0 {
		t.Errorf("the handle is not O_PATH: %x, %v", flags, err)
	}
	if flags, err := unix.FcntlInt(src.File.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the handle is not close-on-exec: %x, %v", flags, err)
	}
}

// TestSwapRace renames a link between a harmless file and a key while it is
// opened: what is returned is never the key.
func TestSwapRace(t *testing.T) {
	w := newFixture(t)
	good, bad, link := w.path("good"), w.path("bad"), w.path("link")
	must(t, os.Symlink(w.home+"/project", good))
	must(t, os.Symlink(w.home+"/.ssh", bad))
	must(t, os.Symlink(w.home+"/project", link))
	var secret unix.Stat_t
	must(t, unix.Stat(w.home+"/.ssh", &secret))
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			for _, other := range []string{good, bad} {
				if err := unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	opened, denied := 0, 0
	// 10 000 times, but no longer than 10 s: the race detector is slow.
	for start := time.Now(); opened+denied < 10_000 && time.Since(start) < 10*time.Second; {
		src, err := Open(link, w.opts)
		if err != nil {
			denied++
			continue
		}
		opened++
		if src.Ino == secret.Ino && src.Dev == secret.Dev {
			t.Error("the key was opened")
		}
		src.Close()
	}
	stop.Store(true)
	wg.Wait()
	if opened == 0 || denied == 0 {
		t.Errorf("no race: opened %d, denied %d", opened, denied)
	}
}

// TestMoveRace moves a file out of a harmless directory into a forbidden one
// and back: what is judged is where it was at one moment, never a mixture that
// fails otherwise than with a sentence.
func TestMoveRace(t *testing.T) {
	w := newFixture(t)
	out, in := w.home+"/project/moving", w.home+"/.ssh/moving"
	must(t, os.WriteFile(out, nil, 0o600))
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			os.Rename(out, in)
			os.Rename(in, out)
		}
	})
	for range 2_000 {
		src, err := Open(out, w.opts)
		if err == nil {
			src.Close()
			continue
		}
		if !errors.Is(err, sandbox.ErrNotFound) && !errors.Is(err, sandbox.ErrDenied) && !errors.Is(err, sandbox.ErrUnavailable) {
			t.Fatalf("%v", err)
		}
	}
	stop.Store(true)
	wg.Wait()
}

// mountsOfAThread are the mounts that a thread sees in a mount namespace of its own,
// with one at dir.
func mountsOfAThread(dir string) (table mountTable, err error) {
	err = threads.Ending(func() error {
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("none", dir, "tmpfs", 0, "")
		}
		if err == nil {
			table, err = readMounts()
		}
		return err
	})
	return table, err
}

// TestMounts runs TestMountsInside in a mount namespace of its own, where bind
// mounts can be made without being root.
func TestMounts(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMountsInside$", "-test.v")
	cmd.Env = append(os.Environ(), "CAISSON_IN_NAMESPACE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestMountsInside") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestMountsInside(t *testing.T) {
	if os.Getenv("CAISSON_IN_NAMESPACE") == "" {
		return // TestMounts calls it
	}
	w := newFixture(t)
	isHome := func(m mountEntry) bool { return m.point == w.home }
	theirs, err := mountsOfAThread(w.home)
	must(t, err)
	ours, err := readMounts()
	must(t, err)
	if !slices.ContainsFunc(theirs, isHome) || len(ours) == 0 || slices.ContainsFunc(ours, isHome) {
		t.Errorf("a thread with mounts of its own sees %v, the others %v", theirs, ours)
	}
	bind := func(from, to string) string {
		to = w.path(to)
		must(t, os.MkdirAll(to, 0o755))
		must(t, unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""))
		t.Cleanup(func() { unix.Unmount(to, unix.MNT_DETACH) })
		return to
	}
	must(t, os.MkdirAll(w.path("queue/in/deep"), 0o755))
	must(t, unix.Mount("none", w.path("queue/in/deep"), "mqueue", 0, ""))
	t.Cleanup(func() { unix.Unmount(w.path("queue/in/deep"), unix.MNT_DETACH) })
	for name, path := range map[string]string{
		"a kernel filesystem elsewhere":          w.path("queue/in/deep"),
		"a directory that shows one":             w.path("queue/in"),
		"a bind of a secret":                     bind(w.home+"/.ssh", "b1"),
		"a bind of what is in a secret":          bind(w.home+"/.ssh/keys", "b2"),
		"a file in a bind of a secret":           w.path("b1/id_rsa"),
		"a bind of a home":                       bind(w.home, "b3"),
		"a secret below a bind of a home":        w.path("b3/.ssh/keys"),
		"a bind of what is above a home":         bind(w.path("people"), "b4"),
		"a bind of etc":                          bind("/etc", "b5"),
		"a bind of proc":                         bind("/proc", "b6"),
		"a bind of the root":                     bind("/", "b7"),
		"a directory that shows a secret":        filepath.Dir(bind(w.home+"/.aws", "shows1/deep/b")),
		"a directory that shows a piece of one":  filepath.Dir(bind(w.home+"/.ssh/keys", "shows2/deep/b")),
		"a directory that shows a home":          filepath.Dir(bind(w.home, "shows3/deep/b")),
		"a directory that shows proc":            filepath.Dir(bind("/proc", "shows4/deep/b")),
		"a directory that shows the state":       filepath.Dir(bind(w.opts.StateDir, "shows5/deep/b")),
		"a name with a space that shows secrets": filepath.Dir(bind(w.home+"/.aws", "sho ws6/de\tep/b")),
	} {
		if strings.Contains(path, "\t") {
			path = filepath.Dir(path)
		}
		t.Log(name)
		check(t, path, w.opts, sandbox.ErrDenied)
	}
	// What was read for the run is found behind other mounts of its directory, or of itself.
	grow(t, w.dir, "in/sub/p", "in/q", "beside/p", "file")
	bind(w.path("in/sub"), "sub")
	bind(w.path("beside"), "in/deep/beside")
	bind(w.path("in/sub"), "twice/again")
	bind(w.path("in"), "twice/in")
	must(t, unix.Mount(w.path("in/q"), w.path("file"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(w.path("file"), unix.MNT_DETACH) })
	for input, tree := range map[string]string{"sub/p": "in", "beside/p": "in", "file": "in", "in/sub/p": "sub", "twice/in/sub/p": "twice"} {
		_, err := Scan(t.Context(), open(t, w.path(tree)), ScanOptions{Inputs: []Input{{Path: w.path(input)}}})
		refusedFor(t, err, "by way of another mount")
	}
	check(t, bind(w.home+"/project", "fine"), w.opts, nil)
	check(t, w.path("fine/data.csv"), w.opts, nil)
}

// TestSpellings writes forbidden and harmless paths in many ways: the answer
// never depends on the spelling.
func TestSpellings(t *testing.T) {
	w := newFixture(t)
	must(t, os.Symlink(w.home, w.path("h")))
	objects := map[string]bool{".ssh": false, ".ssh/keys": false, ".config/gcloud": false, ".local/state/caisson/runs": false, "project": true, "project/sub": true, ".config/other": true}
	names := slices.Sorted(maps.Keys(objects))
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.SampledFrom(names).Draw(t, "object")
		spelled := rapid.SampledFrom([]string{w.home, w.path("h"), w.dir + "//people/./alice"}).Draw(t, "start")
		for range rapid.IntRange(0, 3).Draw(t, "detours") {
			spelled += rapid.SampledFrom([]string{"/.", "//", "/project/..", "/.ssh/keys/../..", "/../alice", "/../../h"}).Draw(t, "detour")
		}
		for _, part := range strings.Split(object, "/") {
			spelled += rapid.SampledFrom([]string{"/", "//", "/./"}).Draw(t, "slash") + part
		}
		spelled += rapid.SampledFrom([]string{"", "/", "/.", "//"}).Draw(t, "end")
		src, err := Open(spelled, w.opts)
		if err == nil {
			src.Close()
		} else if !errors.Is(err, sandbox.ErrDenied) {
			t.Fatal(err)
		}
		if (err == nil) != objects[object] {
			t.Fatalf("%s as %s: %v", object, spelled, err)
		}
	})
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"))
	f.Add([]byte("36 35 98:0 / / rw - proc proc rw\n36 35 0:5 /a\\134 /x rw shared:1 master:2 - - -\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		mounts, err := parseMounts(b)
		if err != nil {
			return
		}
		if lines := strings.Count(strings.TrimSuffix(string(b), "\n"), "\n") + 1; len(mounts) > lines {
			t.Errorf("%d mounts from %d lines", len(mounts), lines)
		}
		mounts.place("/a/b")
		mounts.below("/a")
	})
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"", "/x", "\x00", "\xff", "a\nb", "~", strings.Repeat("x", 5000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if err := checkName(s, Options{}); err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("control characters in %q", err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	w := newFixture(b)
	for b.Loop() {
		src, err := Open(w.home+"/project", w.opts)
		if err != nil {
			b.Fatal(err)
		}
		src.Close()
	}
}
