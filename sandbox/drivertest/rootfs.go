// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var rootTests = []test{
	{name: "nothing but scratch is writable", run: testReadOnlyRoot},
	{name: "nothing of the host shows", run: testCanaries},
	{name: "devices are harmless", run: testDevices},
	{name: "proc and sys cannot be changed", run: testProcSys},
	{name: "the toolchain works", run: testToolchain},
}

// canary is a text that stands in places of the host where no sandbox may look.
const (
	canary    = "canary-3b1f7c5e-of-the-host"
	canaryEnv = "CAISSON_DRIVERTEST_CANARY"
	canaryFD  = 77
)

// canaryPlaces are where secrets lie on a host; those that the tests' user may
// write to get one.
var canaryPlaces = []string{"/root", "/home", "/var/lib", "/var/tmp", "/srv", "/run", "/tmp", "/dev/shm", "/etc", "/opt", "/mnt"}

func (s *suite) plantCanaries(t *testing.T) {
	t.Helper()
	// An inheritable descriptor, and a variable: what a careless caller has.
	f, err := os.Create(filepath.Join(s.dir, "canary"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(canary); err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup2(int(f.Fd()), canaryFD); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(canaryFD) })
	t.Setenv(canaryEnv, canary)
	for _, place := range canaryPlaces {
		path := filepath.Join(place, fmt.Sprintf("drivertest-canary-%d", os.Getpid()))
		if os.WriteFile(path, []byte(canary), 0o644) == nil {
			t.Cleanup(func() { os.Remove(path) })
		}
	}
}

func testReadOnlyRoot(t *testing.T, s *suite, r road) {
	var got struct {
		Tried int
		Wrote []string
	}
	s.fixture(t).python(t, r, `
tried, wrote = 0, []
skip = ('/proc', '/sys', '/dev/shm', '/tmp', '/home/user')
for top, dirs, files in os.walk('/'):
    if top in skip: dirs[:] = []; continue
    if top.count('/') >= 3: dirs[:] = []
    tried += 1
    for what in (lambda: put(top + '/caisson-x'), lambda: os.mkdir(top + '/caisson-d'), lambda: os.symlink('x', top + '/caisson-l')):
        if attempt(what) is None: wrote.append(top)
    for f in files[:20]:
        p = top + '/' + f
        if top.startswith('/dev') or os.path.islink(p): continue
        for what in (lambda: open(p, 'r+b').close(), lambda: os.unlink(p), lambda: os.chmod(p, 0o777), lambda: os.rename(p, p + 'x')):
            if attempt(what) is None: wrote.append(p)
say({'Tried': tried, 'Wrote': wrote})`, &got)
	if len(got.Wrote) > 0 {
		t.Errorf("writable: %v", got.Wrote)
	}
	if got.Tried < 30 {
		t.Errorf("only %d directories were tried", got.Tried)
	}
}

func testCanaries(t *testing.T, s *suite, r road) {
	var got struct {
		Seen    []string
		Listing map[string][]string
	}
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	w.python(t, r, `
seen = []
for place in sys.argv[1:]:
    for top, dirs, files in os.walk(place):
        seen += [top + '/' + f for f in files if 'drivertest' in f]
        if top.count('/') > 4: dirs[:] = []
listing = {} # files: empty directories may be there
for place in ('/root', '/home', '/var', '/srv', '/run', '/mnt', '/media', '/tmp', '/dev/shm'):
    listing[place] = [top + '/' + f for top, dirs, files in os.walk(place) for f in files]
say({'Seen': seen, 'Listing': listing})`, &got, canaryPlaces...)
	if len(got.Seen) > 0 {
		t.Errorf("files of the host: %v", got.Seen)
	}
	for place, names := range got.Listing {
		if len(names) > 0 {
			t.Errorf("%s holds %v", place, names)
		}
	}
	// The host's own paths lead nowhere, by whatever way.
	o := w.run(t, r, "sh", "-c", `for p in "$1" /proc/1/root"$1" /proc/self/root"$1" /home/user/../../"$1"; do cat "$p"; done; true`, "sh", filepath.Join(s.dir, "canary"))
	if strings.Contains(o.out, canary) {
		t.Error("a file of the host was read by its path")
	}
}

func testDevices(t *testing.T, s *suite, r road) {
	var got struct {
		Block []string
		Char  []string
		Works bool
	}
	s.fixture(t).python(t, r, `
block, char = [], []
for top, dirs, files in os.walk('/dev'):
    for f in files:
        try: m, it = os.stat(top + '/' + f).st_mode, os.stat(top + '/' + f).st_rdev
        except OSError: continue
        if it == os.makedev(1, 3): continue # null, or masked
        if stat.S_ISBLK(m): block.append(top + '/' + f)
        if stat.S_ISCHR(m): char.append(top + '/' + f)
works = open('/dev/null', 'wb').write(b'x') == 1 and open('/dev/zero', 'rb').read(3) == b'\0\0\0' and len(os.urandom(8)) == 8 and len(open('/dev/urandom', 'rb', 0).read(8)) == 8
say({'Block': block, 'Char': char, 'Works': works})`, &got)
	// fuse and tun are of use only to a program that may mount or has CAP_NET_ADMIN; a
	// kernel of the sandbox's own may show them.
	harmless := []string{"fuse", "tun", "null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "stdin", "stdout", "stderr"}
	for _, dev := range got.Char {
		if !slices.Contains(harmless, filepath.Base(dev)) && !strings.HasPrefix(dev, "/dev/pts/") && !strings.HasPrefix(dev, "/dev/fd/") && !strings.HasPrefix(dev, "/dev/char/") {
			t.Errorf("there is a device %s", dev)
		}
	}
	if len(got.Block) > 0 {
		t.Errorf("block devices: %v", got.Block)
	}
	if !got.Works {
		t.Error("null, zero or urandom do not work")
	}
}

func testProcSys(t *testing.T, s *suite, r road) {
	got := map[string]string{}
	s.fixture(t).python(t, r, `
def masked(p): return os.path.exists(p) and os.stat(p).st_rdev == os.makedev(1, 3)
say({p: 'masked' if masked(p) else attempt(put, p) or 'WRITTEN' for p in ('/proc/sys/kernel/hostname', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger',
  '/proc/sys/vm/overcommit_memory', '/sys/kernel/uevent_helper', '/sys/fs/cgroup/cgroup.procs', '/sys/kernel/mm/ksm/run', '/proc/1/oom_score_adj')})`, &got)
	for path, result := range got {
		if result == "WRITTEN" {
			t.Errorf("%s was written", path)
		}
	}
}

func testToolchain(t *testing.T, s *suite, r road) {
	o := s.fixture(t).run(t, r, "sh", "-c", `set -e
echo hello | tr a-z A-Z | sed s/L/l/g
seq 1000 | sort -rn | head -1
python3 -c 'import json, hashlib, threading, subprocess; print(subprocess.run(["expr", "6", "*", "7"], capture_output=True, text=True).stdout.strip())'
getent hosts localhost >/dev/null && echo local
`).ok(t)
	if want := "HEllO\n1000\n42\nlocal\n"; o.out != want {
		t.Errorf("%q, want %q", o.out, want)
	}
}
