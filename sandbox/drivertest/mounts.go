// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

var mountTests = []test{
	{name: "read-only directory", run: testReadOnlyMount},
	{name: "read-only file", run: testReadOnlyFile},
	{name: "copy-on-write", run: testCopyOnWrite},
	{name: "copy-on-write counts as disk", run: testCopyOnWriteQuota},
	{name: "copy-on-write file", run: testCopyOnWriteFile},
	{name: "copy-on-write directories can be renamed", run: testCopyOnWriteRename},
	{name: "read-write", run: testReadWrite},
	{name: "read-write file", run: testReadWriteFile},
	{name: "copy-on-write beside read-write", run: testCopyOnWriteBesideReadWrite},
	{name: "the object, not its name", run: testMountedObject},
	{name: "symlinks lead nowhere", run: testMountSymlinks},
	{name: "in the working directory", run: testMountInHome},
	{name: "odd names", run: testOddNames},
	{name: "many", run: testManyMounts},
}

// tree makes a small tree on the host.
func tree(t *testing.T, s *suite) string {
	t.Helper()
	dir := s.path(t) + "/tree"
	write(t, dir+"/file", "content\n", 0o644)
	write(t, dir+"/sub/deep", "deep\n", 0o644)
	write(t, dir+"/open", "open\n", 0o666)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listing is what is in a tree on the host: names, modes and contents.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(path, dir) + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			line += " " + read(t, path)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

const meddle = `
d = sys.argv[1]
say({'read': open(d + '/file').read() + open(d + '/sub/deep').read(), 'done': [name for name, f in {
  'create': lambda: put(d + '/new'), 'overwrite': lambda: put(d + '/open'), 'append': lambda: put(d + '/file', b'x', 'ab'),
  'unlink': lambda: os.unlink(d + '/sub/deep'), 'rename': lambda: os.rename(d + '/file', d + '/moved'), 'mkdir': lambda: os.mkdir(d + '/dir'),
  'chmod': lambda: os.chmod(d + '/open', 0o777), 'symlink': lambda: os.symlink('x', d + '/link'), 'truncate': lambda: os.truncate(d + '/open', 0),
  'utime': lambda: os.utime(d + '/open', (1, 1)), 'link': lambda: os.link(d + '/open', d + '/hard'),
}.items() if attempt(f) is None]})`

type meddled struct {
	Read string
	Done []string
}

func testReadOnlyMount(t *testing.T, s *suite, r road) {
	dir := tree(t, s)
	before := listing(t, dir)
	var got meddled
	s.fixture(t, mount(t, dir, "/data", sandbox.ReadOnly)).python(t, r, meddle, &got, "/data")
	if got.Read != "content\ndeep\n" || len(got.Done) > 0 {
		t.Errorf("%+v", got)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the host's files were\n%s\nand are\n%s", before, after)
	}
}

func testReadOnlyFile(t *testing.T, s *suite, r road) {
	dir := tree(t, s)
	var got struct {
		Read  string
		Done  []string
		Names []string
	}
	// /data is a directory of every root, there to be mounted on: a file may take its place.
	s.fixture(t, mount(t, dir+"/open", "/home/user/data.csv", sandbox.ReadOnly), mount(t, dir+"/file", "/data", sandbox.ReadOnly)).python(t, r, `
p = '/home/user/data.csv'
say({'Read': open(p).read() + open('/data').read(), 'Names': os.listdir('/home/user'), 'Done': [n for n, f in {'write': lambda: put(p), 'unlink': lambda: os.unlink(p),
  'chmod': lambda: os.chmod(p, 0o777), 'rename': lambda: os.rename(p, p + 'x'), 'replace': lambda: (put('/home/user/y'), os.rename('/home/user/y', p))}.items() if attempt(f) is None]})`, &got)
	if got.Read != "open\ncontent\n" || len(got.Done) > 0 || !slices.Equal(got.Names, []string{"data.csv"}) {
		t.Errorf("%+v", got)
	}
	if read(t, dir+"/open") != "open\n" {
		t.Error("the host's file has changed")
	}
}

func (s *suite) needAccess(t *testing.T, a sandbox.Access) {
	t.Helper()
	if a == sandbox.CopyOnWrite && !s.caps.CopyOnWrite || a == sandbox.ReadWrite && !s.caps.ReadWrite {
		s.lacks(t, "no "+a.String()+" mounts")
	}
}

func testCopyOnWrite(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.CopyOnWrite)
	dir := tree(t, s)
	// As root the host's files may belong to another user than the sandbox's;
	// their owner must not matter for a private copy.
	before := listing(t, dir)
	var got meddled
	w := s.fixture(t, mount(t, dir, "/data", sandbox.CopyOnWrite))
	w.python(t, r, meddle, &got, "/data")
	if got.Read != "content\ndeep\n" || !slices.Contains(got.Done, "create") || !slices.Contains(got.Done, "append") || !slices.Contains(got.Done, "unlink") {
		t.Errorf("%+v", got)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the host's files were\n%s\nand are\n%s", before, after)
	}
	// The next sandbox sees the host's files, not the last one's.
	s.fixture(t, mount(t, dir, "/data", sandbox.CopyOnWrite)).python(t, r, meddle, &got, "/data")
	if got.Read != "content\ndeep\n" {
		t.Errorf("a later sandbox sees %q", got.Read)
	}
}

func testCopyOnWriteQuota(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.CopyOnWrite)
	s.need(t, sandbox.LimitDisk)
	var got []any
	w := s.fixture(t, mount(t, tree(t, s), "/data", sandbox.CopyOnWrite), limit(func(l *sandbox.Limits) { l.Disk = 16 * mib }))
	w.python(t, r, fillTo+`say(fill('/data/big'))`, &got)
	if got[1] == nil {
		t.Errorf("writes to a copy-on-write mount are not bounded: %v", got)
	} else if n, _ := got[0].(float64); n > 16*mib*1.05 {
		t.Errorf("%v bytes went into a copy-on-write mount, the limit is %d", n, 16*mib)
	}
}

// testCopyOnWriteRename: what was renamed is there once. What is hidden in a directory
// stays so where that can be renamed, and it need not.
func testCopyOnWriteRename(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.CopyOnWrite)
	dir := tree(t, s)
	write(t, dir+"/top/secret", "canary", 0o644)
	before := listing(t, dir)
	hide := func(spec *sandbox.Spec) {
		if s.caps.Masks {
			spec.Masks = []sandbox.Mask{{Target: "/data/top/secret"}}
		}
	}
	var got struct {
		Refused string
		Names   []string
		Secrets []string
		Forged  []string
	}
	s.fixture(t, mount(t, dir, "/data", sandbox.CopyOnWrite), hide).python(t, r, `
import errno
def tries(f):
    try: return f() or ''
    except OSError as e: return errno.errorcode[e.errno]
refused = tries(lambda: os.rename('/data/sub', '/data/moved'))
if not refused: put('/data/moved/new'); os.mkdir('/data/sub'); put('/data/sub/other')
tries(lambda: os.rename('/data/top', '/data/t')); tries(lambda: os.mkdir('/data/top'))
names = sorted(p + '/' + n for p in ('/data/sub', '/data/moved') if os.path.isdir(p) for n in os.listdir(p))
secrets = [tries(lambda: open(d + '/secret').read()) for d in ('/data/t', '/data/top', '/data/moved', '/data/sub')]
forged = [n for n in ('redirect', 'opaque', 'metacopy') if attempt(lambda: os.setxattr('/data/moved', 'trusted.overlay.' + n, b'/top')) is None]
say({'Refused': refused, 'Names': names, 'Secrets': secrets, 'Forged': forged})`, &got)
	if after := listing(t, dir); after != before {
		t.Errorf("the host's files were\n%s\nand are\n%s", before, after)
	}
	if len(got.Forged) > 0 || s.caps.Masks && slices.Contains(got.Secrets, "canary") {
		t.Errorf("%+v", got)
	}
	if got.Refused == "EXDEV" {
		s.lacks(t, "the kernel renames directories of a lower layer (EXDEV) for the host's root alone")
	}
	if want := []string{"/data/moved/deep", "/data/moved/new", "/data/sub/other"}; !slices.Equal(got.Names, want) {
		t.Errorf("after the renaming there is %q, want %q; refused: %q", got.Names, want, got.Refused)
	}
}

// testCopyOnWriteBesideReadWrite: each mount keeps to its own mode, inside one another
// too.
func testCopyOnWriteBesideReadWrite(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.CopyOnWrite)
	s.needAccess(t, sandbox.ReadWrite)
	private, live := s.path(t)+"/private", s.path(t)+"/live"
	for _, dir := range []string{private, live} {
		write(t, dir+"/file", "old", 0o666)
		for _, d := range []string{dir, dir + "/in"} {
			if err := os.MkdirAll(d, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(d, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := listing(t, private)
	var got []string
	s.fixture(t, mount(t, live, "/live", sandbox.ReadWrite), mount(t, private, "/live/in", sandbox.CopyOnWrite),
		mount(t, private, "/private", sandbox.CopyOnWrite), mount(t, live, "/private/in", sandbox.ReadWrite)).python(t, r, `
for d in ('/live', '/private', '/live/in', '/private/in'): put(d + '/file', d.encode()); put(d + '/new', d.encode())
say([open(d + '/file').read() + open(d + '/new').read() for d in ('/live', '/private', '/live/in', '/private/in')])`, &got)
	if want := []string{"/private/in/private/in", "/private/private", "/live/in/live/in", "/private/in/private/in"}; !slices.Equal(got, want) {
		t.Errorf("inside there is %q, want %q", got, want)
	}
	if after := listing(t, private); after != before {
		t.Errorf("the host's files in the copy-on-write mounts were\n%s\nand are\n%s", before, after)
	}
	for _, name := range []string{"/file", "/new"} {
		if got := read(t, live+name); got != "/private/in" {
			t.Errorf("%s on the host has %q", name, got)
		}
	}
}

// testCopyOnWriteFile: one file alone, and one whose directory is mounted otherwise.
func testCopyOnWriteFile(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.CopyOnWrite)
	dir := tree(t, s)
	write(t, dir+"/run", "#!/bin/sh\necho ran\n", 0o755)
	write(t, dir+"/empty", "", 0o644)
	before := listing(t, dir)
	files := func(spec *sandbox.Spec) {
		for name, target := range map[string]string{"file": "/home/user/a/data.csv", "run": "/mnt/run", "empty": "/data", "open": "/home/user/open"} {
			mount(t, dir+"/"+name, target, sandbox.CopyOnWrite)(spec)
		}
	}
	const script = `cat a/data.csv open; /mnt/run; stat -c %u:%g:%a a/data.csv /mnt/run
echo more >> a/data.csv && echo new > open && echo x > /data && cat a/data.csv open /data`
	const want = "content\nopen\nran\n1000:1000:644\n1000:1000:755\ncontent\nmore\nnew\nx\n"
	for range 2 { // a later sandbox sees the host's files, not the last one's
		if o := s.fixture(t, files).run(t, r, "sh", "-c", script).ok(t); o.out != want {
			t.Errorf("%q, want %q (%s)", o.out, want, o.errs)
		}
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the host's files were\n%s\nand are\n%s", before, after)
	}
	if !s.enforced(sandbox.LimitDisk) {
		return
	}
	var got []any
	w := s.fixture(t, mount(t, dir+"/file", "/home/user/file", sandbox.CopyOnWrite), limit(func(l *sandbox.Limits) { l.Disk = 16 * mib }))
	w.python(t, r, fillTo+`say(fill('file'))`, &got)
	if n, _ := got[0].(float64); got[1] == nil || n > 16*mib*1.05 {
		t.Errorf("a copy-on-write file took %v, the limit is %d", got, 16*mib)
	}
}

func testReadWrite(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.ReadWrite)
	dir := tree(t, s)
	var got meddled
	s.fixture(t, mount(t, dir, "/data", sandbox.ReadWrite)).python(t, r, meddle, &got, "/data")
	if !slices.Contains(got.Done, "create") || !slices.Contains(got.Done, "mkdir") {
		t.Fatalf("%+v", got)
	}
	if read(t, dir+"/new") != "x" {
		t.Error("what was written did not come out")
	}
	// New files belong to the owner of the directory, not to a uid of the
	// sandbox that no user of the host can remove.
	for _, name := range []string{"new", "dir"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		} else if uid := info.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Geteuid() {
			t.Errorf("%s belongs to uid %d, we are %d", name, uid, os.Geteuid())
		}
	}
}

func testReadWriteFile(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.ReadWrite)
	dir := tree(t, s)
	s.fixture(t, mount(t, dir+"/open", "/mnt/input", sandbox.ReadWrite)).run(t, r, "sh", "-c", "echo more >> /mnt/input; ls / >&2").ok(t)
	if got := read(t, dir+"/open"); got != "open\nmore\n" {
		t.Errorf("the host's file holds %q", got)
	}
	if got := read(t, dir+"/file"); got != "content\n" {
		t.Errorf("the file beside it holds %q", got)
	}
}

// testMountedObject: between check and start a symlink to a secret is put where
// the checked directory was.
func testMountedObject(t *testing.T, s *suite, r road) {
	for _, kind := range []string{"directory", "file"} {
		dir := tree(t, s)
		source, target, name := dir, "/data", "/data/file"
		if kind == "file" {
			source, target, name = dir+"/file", "/mnt/input", "/mnt/input"
		}
		w := s.fixture(t, mount(t, source, target, sandbox.ReadOnly))
		secret := s.path(t)
		write(t, secret+"/file", canary, 0o644)
		if err := os.Rename(source, source+".moved"); err != nil {
			t.Fatal(err)
		}
		trap := secret
		if kind == "file" {
			trap = secret + "/file"
		}
		if err := os.Symlink(trap, source); err != nil {
			t.Fatal(err)
		}
		o := w.run(t, r, "cat", name).ok(t)
		if o.out != "content\n" {
			t.Errorf("%s: %q was mounted, not what had been opened", kind, o.out)
		}
	}
}

func testMountSymlinks(t *testing.T, s *suite, r road) {
	dir := tree(t, s)
	outside := s.path(t) + "/secret"
	write(t, outside, canary, 0o644)
	for name, target := range map[string]string{"absolute": outside, "dots": strings.Repeat("../", 20) + outside, "up": "../../" + filepath.Base(filepath.Dir(outside)) + "/secret", "proc": "/proc/1/root" + outside} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	access := sandbox.ReadOnly
	if s.caps.ReadWrite {
		access = sandbox.ReadWrite
	}
	o := s.fixture(t, mount(t, dir, "/data", access)).run(t, r, "sh", "-c", `cat /data/absolute /data/dots /data/up /data/proc /data/../../..$0
for l in absolute dots up proc; do echo OVERWRITTEN > /data/$l; done
cd /data && ln -s / root && cat root$0; true`, outside).ok(t)
	if strings.Contains(o.out, canary) {
		t.Error("a symlink in a mount led to a file of the host")
	}
	if read(t, outside) != canary {
		t.Error("a write through a symlink reached a file of the host")
	}
}

func testMountInHome(t *testing.T, s *suite, r road) {
	dir := tree(t, s)
	w := s.fixture(t, mount(t, dir, "/home/user/job", sandbox.ReadOnly), mount(t, dir+"/file", "/home/user/a/b/c.txt", sandbox.ReadOnly))
	o := w.run(t, r, "sh", "-c", "cat job/sub/deep a/b/c.txt; echo mine > own; cat own; touch job/x 2>/dev/null || echo refused").ok(t)
	if want := "deep\ncontent\nmine\nrefused\n"; o.out != want {
		t.Errorf("%q, want %q", o.out, want)
	}
}

func testOddNames(t *testing.T, s *suite, r road) {
	dir := s.path(t)
	for _, name := range []string{"with space", "comma,colon:equals=", "quote\"back\\slash", "ünïcödé", "-dash"} {
		write(t, dir+"/"+name, name, 0o644)
		w := s.fixture(t, mount(t, dir+"/"+name, "/home/user/"+name, sandbox.ReadOnly))
		if s.odd != nil && s.odd(name) {
			if _, err := r.run(timeout(t), w.spec, w.exec("true")); !errors.Is(err, sandbox.ErrUnsupported) || sandbox.Hint(err) == "" {
				t.Errorf("%q is neither mounted nor refused: %v", name, err)
			}
			continue
		}
		if o := w.run(t, r, "cat", "/home/user/"+name).ok(t); o.out != name {
			t.Errorf("%q holds %q", name, o.out)
		}
	}
}

func testManyMounts(t *testing.T, s *suite, r road) {
	dir := s.path(t)
	var mounts []func(*sandbox.Spec)
	for i := range 20 {
		write(t, dir+"/f"+itoa(i), itoa(i)+"\n", 0o644)
		mounts = append(mounts, mount(t, dir+"/f"+itoa(i), "/home/user/f"+itoa(i), sandbox.ReadOnly))
	}
	o := s.fixture(t, mounts...).run(t, r, "sh", "-c", "cat f* | sort -n | tr '\\n' ' '").ok(t)
	if want := "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 "; o.out != want {
		t.Errorf("%q", o.out)
	}
}
