// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var identityTests = []test{
	{name: "uid 1000 without capabilities", run: testNobodySpecial},
	{name: "privileged calls are refused", run: testPrivilegedCalls},
	{name: "set-user-id programs gain nothing", run: testSetuid},
	{name: "environment is what was given", run: testEnvironment},
	{name: "no descriptor is inherited", run: testDescriptors},
	{name: "no process of the host is seen", run: testProcesses},
}

func testNobodySpecial(t *testing.T, s *suite, r road) {
	var got struct {
		IDs, Groups []int
		Caps        map[string]string
		NoNewPrivs  int
		Name, Home  string
		Cwd, Node   string
	}
	s.fixture(t).python(t, r, `
import pwd, ctypes
caps = {l.split(':')[0]: l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')}
say({'IDs': [os.getuid(), os.geteuid(), os.getgid(), os.getegid()], 'Groups': os.getgroups(), 'Caps': caps,
     'NoNewPrivs': ctypes.CDLL(None).prctl(39, 0, 0, 0, 0), 'Name': pwd.getpwuid(os.getuid()).pw_name,
     'Home': os.path.expanduser('~'), 'Cwd': os.getcwd(), 'Node': os.uname().nodename})`, &got)
	if d := cmp.Diff([]int{1000, 1000, 1000, 1000}, got.IDs); d != "" {
		t.Error(d)
	}
	for _, g := range got.Groups {
		if g != 1000 {
			t.Errorf("in group %d", g)
		}
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff"} {
		if v, ok := got.Caps[set]; !ok || strings.Trim(v, "0") != "" {
			t.Errorf("%s is %q", set, v)
		}
	}
	if got.NoNewPrivs != 1 {
		t.Errorf("no_new_privs is %d", got.NoNewPrivs)
	}
	if got.Name != "user" || got.Home != home || got.Cwd != home || got.Node != "sandbox" {
		t.Errorf("name %q, home %q, in %q on %q", got.Name, got.Home, got.Cwd, got.Node)
	}
}

// testPrivilegedCalls: the first process of a pid namespace takes no signal from inside
// that it does not handle (pid_namespaces(7)), and where the caller is the program's user
// and Landlock has no scopes (before Linux 6.12) there is no error. Were it killed, so
// would be the caller.
func testPrivilegedCalls(t *testing.T, s *suite, r road) {
	got := map[string]string{}
	s.fixture(t).python(t, r, `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def raw(name, *a):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno(), '?') if getattr(libc, name)(*a) < 0 else None
say({k: v or 'ALLOWED' for k, v in {
  'setuid': attempt(os.setuid, 0), 'setgid': attempt(os.setgid, 0), 'setgroups': attempt(os.setgroups, [0]),
  'chroot': attempt(os.chroot, '/tmp'), 'mknod': attempt(os.mknod, '/tmp/sda', 0o660 | stat.S_IFBLK, os.makedev(8, 0)),
  'chown': attempt(lambda: (put('/tmp/own'), os.chown('/tmp/own', 0, 0))),
  'hostname': attempt(socket.sethostname, 'x'),
  'mount': raw('mount', b'tmpfs', b'/tmp', b'tmpfs', 0, None), 'umount': raw('umount2', b'/tmp', 2),
  'settime': raw('clock_settime', 0, (ctypes.c_long * 2)(1, 1)), 'kill 1': attempt(os.kill, 1, 9) or 'ignored' if os.getpid() != 1 else 'EPERM',
  'reboot': raw('reboot', 0x1234567), 'swapon': raw('swapon', b'/tmp/own', 0),
}.items()})`, &got)
	for call, result := range got {
		if result == "ALLOWED" {
			t.Errorf("%s was allowed", call)
		}
	}
	if len(got) < 13 {
		t.Errorf("only %d calls were tried: %v", len(got), got)
	}
}

// testSetuid needs a program that is set-user-id root, which only root can make.
// A user's own uid in front is harmless inside, and tried too.
func testSetuid(t *testing.T, s *suite, r road) {
	dir := s.path(t)
	id, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/id", string(id), 0o755)
	if err := unix.Chmod(dir+"/id", 0o6755); err != nil {
		t.Fatal(err)
	}
	o := s.fixture(t, mount(t, dir, "/data", 0)).run(t, r, "/data/id", "-u").ok(t)
	if o.out != "1000\n" {
		t.Errorf("a set-user-id program runs as %q", o.out)
	}
}

func testEnvironment(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	w.env = append(w.env, "EMPTY=", "SPACED= a b ", "UTF8=ü", "MULTI=a\nb")
	var got map[string]string
	w.python(t, r, "say(dict(os.environ))", &got)
	want := map[string]string{}
	for _, kv := range w.env {
		k, v, _ := strings.Cut(kv, "=")
		want[k] = v
	}
	delete(got, "LC_CTYPE") // python sets it for itself
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// The canary is in ours, and must be in no environment inside.
	if os.Getenv(canaryEnv) == "" {
		t.Fatal("there is no canary in the environment")
	}
	o := w.run(t, r, "sh", "-c", "cat /proc/[0-9]*/environ 2>/dev/null; true").ok(t)
	if strings.Contains(o.out, canary) {
		t.Errorf("the caller's environment shows through: %q", o.out)
	}
	// A long one, before a command line that is longer still: they are no more to a
	// level than what a program may be started with.
	const long = 100_000
	w = s.fixture(t)
	w.env = append(w.env, "LONG="+strings.Repeat("e", long))
	args := slices.Repeat([]string{strings.Repeat("a", long)}, 8)
	o = w.run(t, r, append([]string{"sh", "-c", `echo ${#LONG} $# ${#1} ${#8}`, "sh"}, args...)...).ok(t)
	if want := fmt.Sprintln(long, len(args), long, long); o.out != want {
		t.Errorf("a long environment and command line: %q, want %q", o.out, want)
	}
}

func testDescriptors(t *testing.T, s *suite, r road) {
	var got []string
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	w.python(t, r, `
fds = sorted(int(n) for n in os.listdir('/proc/self/fd'))
say([str(n) for n in fds if n > 2 and os.path.exists('/proc/self/fd/%d' % n)])`, &got)
	if len(got) > 0 {
		t.Errorf("open besides 0, 1 and 2: %v", got)
	}
	o := w.run(t, r, "sh", "-c", "cat <&"+fmt.Sprint(canaryFD)+"; true")
	if strings.Contains(o.out, canary) {
		t.Error("a descriptor of the caller is open inside")
	}
	// What the agent or the level itself keeps open must be out of reach too.
	o = w.run(t, r, "sh", "-c", "cat /proc/1/fd/* 2>/dev/null </dev/null | head -c 100; ls -l /proc/1/fd 2>/dev/null; true").ok(t)
	if strings.Contains(o.out, canary) || strings.Contains(o.out, s.dir) {
		t.Errorf("seen through /proc/1/fd: %s", o.out)
	}
}

func testProcesses(t *testing.T, s *suite, r road) {
	var got map[string]string
	s.fixture(t).python(t, r, `
def comm(p):
    try: return open('/proc/%s/cmdline' % p, 'rb').read().replace(b'\0', b' ').decode(errors='replace')
    except OSError: return '?'
say({p: comm(p) for p in os.listdir('/proc') if p.isdigit()})`, &got)
	if len(got) == 0 || len(got) > 4 {
		t.Errorf("%d processes are seen: %v", len(got), got)
	}
	if _, ok := got[fmt.Sprint(os.Getpid())]; ok && os.Getpid() > 100 {
		t.Errorf("ours is among them: %v", got)
	}
}
