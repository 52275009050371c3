// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// fakeHost makes a host root from lines: "usr/bin/", "etc/magic=text",
// "bin->usr/bin", with " 0600" behind for a mode.
func fakeHost(t *testing.T, lines ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, l := range lines {
		l, mode, _ := strings.Cut(l, " ")
		name, link, isLink := strings.Cut(l, "->")
		name, text, _ := strings.Cut(name, "=")
		at := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		switch {
		case isLink:
			must(t, os.Symlink(link, at))
			continue
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(at, 0o755))
		default:
			must(t, os.WriteFile(at, []byte(text), 0o644))
		}
		switch mode {
		case "0600":
			must(t, os.Chmod(at, 0o600))
		case "0700":
			must(t, os.Chmod(at, 0o700))
		case "4755":
			must(t, os.Chmod(at, 0o755|fs.ModeSetuid))
		}
	}
	return root
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build calls Host on a fake root with a cache of its own.
func build(t *testing.T, root string, o HostOptions) (*Root, error) {
	t.Helper()
	o.root = root
	if o.Cache == "" {
		o.Cache = filepath.Join(t.TempDir(), "cache")
	}
	r, err := Host(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { r.Close() })
	}
	return r, err
}

// list is the tree as "path kind-or-mode content-or-link".
func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(p, dir)
		switch info, _ := d.Info(); {
		case d.IsDir():
			out[rel] = info.Mode().String()
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(p)
			out[rel] = "-> " + link
			return err
		default:
			b, err := os.ReadFile(p)
			out[rel] = info.Mode().String() + " " + string(b)
			return err
		}
		return nil
	}))
	return out
}

var debian = []string{
	"usr/bin/bash= 4755", "usr/lib/", "usr/lib64/", "usr/sbin/", "usr/local/bin/",
	"bin->usr/bin", "sbin->usr/sbin", "lib->usr/lib", "lib64->usr/lib64",
	"etc/magic=#magic", "etc/services=http 80/tcp", "etc/alternatives/awk->/usr/bin/mawk",
	"etc/alternatives/leak->/var/lib/private/thing", "etc/alternatives/home->/home/alice/bin/x",
	"etc/ssl/certs/a.pem=cert", "etc/ssl/certs/b.0->a.pem", "etc/ssl/certs/up->../private/key.pem", "etc/ssl/private/key.pem=KEY", "etc/ssl/certs/own.key=KEY 0600",
	"etc/python3.11/sitecustomize.py=pass", "etc/python3/debian_config=x 4755", "etc/java-17-openjdk/security/policy=ok", "etc/java-17-openjdk/management/jmxremote.password=KEY 0600",
	"etc/java-17-openjdk/hidden/x=KEY", "etc/os-release->../usr/lib/os-release", "etc/localtime->/usr/share/zoneinfo/UTC",
	"etc/shadow=KEY", "etc/gshadow=KEY", "etc/sudoers=KEY", "etc/ssh/ssh_host_rsa_key=KEY", "etc/fstab=KEY", "etc/crypttab=KEY",
	"etc/machine-id=KEY", "etc/hostid=KEY", "etc/hostname=KEY", "etc/hosts=KEY", "etc/passwd=KEY", "etc/group=KEY", "etc/resolv.conf=KEY",
	"etc/cloud/cloud.cfg=KEY", "etc/environment=KEY", "etc/pip.conf=KEY", "etc/npmrc=KEY", "etc/gitconfig=KEY", "etc/profile=KEY", "etc/profile.d/x.sh=KEY", "etc/apt/auth.conf=KEY",
	"root/x=KEY", "home/alice/x=KEY", "var/lib/private/thing=KEY", "srv/x=KEY", "run/x=KEY",
}

func TestHostShowsTheToolchainAndNoSecret(t *testing.T) {
	root := fakeHost(t, debian...)
	must(t, os.Chmod(filepath.Join(root, "etc/java-17-openjdk/hidden"), 0o700))
	must(t, syscall.Mkfifo(filepath.Join(root, "etc/ssl/certs/fifo"), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "etc/ssl/certs/huge.pem"), make([]byte, maxFile+1), 0o644))
	defer syscall.Umask(syscall.Umask(0o077))

	r, err := build(t, root, HostOptions{})
	must(t, err)
	tree := list(t, r.Sandbox().Dir.Name())
	for at, what := range tree {
		if strings.Contains(what, "KEY") {
			t.Errorf("%s holds a secret: %s", at, what)
		}
		if strings.Contains(what, "/home/alice") || strings.Contains(what, "/var/lib/private") {
			t.Errorf("%s names what is not shown: %s", at, what)
		}
		if !strings.HasPrefix(what, "->") && !strings.HasPrefix(what, "drwxr-xr-x") && !strings.HasPrefix(what, "-rw-r--r--") && at != "/tmp" {
			t.Errorf("%s has a mode that is not 0755 or 0644: %s", at, what)
		}
	}
	want := map[string]string{
		"/bin": "-> usr/bin", "/lib64": "-> usr/lib64", "/usr": "drwxr-xr-x", "/tmp": "dtrwxrwxrwx", "/home/user": "drwxr-xr-x", "/proc": "drwxr-xr-x",
		"/etc/magic": "-rw-r--r-- #magic", "/etc/alternatives/awk": "-> /usr/bin/mawk",
		"/etc/ssl/certs/a.pem": "-rw-r--r-- cert", "/etc/ssl/certs/b.0": "-> a.pem",
		"/etc/python3/debian_config":           "-rw-r--r-- x",
		"/etc/java-17-openjdk/security/policy": "-rw-r--r-- ok",
		"/etc/os-release":                      "-> ../usr/lib/os-release", "/etc/localtime": "-> /usr/share/zoneinfo/UTC",
		"/etc/hostname": "-rw-r--r-- sandbox\n", "/etc/machine-id": "-rw-r--r-- " + machineID + "\n",
		"/etc/mtab": "-> ../proc/self/mounts", "/var/run": "-> ../run",
	}
	for at, what := range want {
		if tree[at] != what {
			t.Errorf("%s: got %q, want %q", at, tree[at], what)
		}
	}
	for _, at := range []string{"/etc/shadow", "/etc/ssl/private", "/etc/ssl/certs/up", "/etc/ssl/certs/own.key", "/etc/ssl/certs/fifo", "/etc/ssl/certs/huge.pem",
		"/etc/java-17-openjdk/management/jmxremote.password", "/etc/java-17-openjdk/hidden", "/etc/profile.d", "/root/x", "/srv/x"} {
		if what, ok := tree[at]; ok {
			t.Errorf("%s is there: %s", at, what)
		}
	}
	if !strings.Contains(tree["/etc/passwd"], "\nuser:x:1000:1000:user:/home/user:/bin/bash\n") {
		t.Errorf("passwd: %s", tree["/etc/passwd"])
	}
	var binds []string
	for _, b := range r.Sandbox().Binds {
		binds = append(binds, b.Target)
	}
	if diff := cmp.Diff([]string{"/usr"}, binds); diff != "" {
		t.Errorf("binds: %s", diff)
	}
}

// What agents' programs expect is there where the host does not have it.
func TestHostPrograms(t *testing.T) {
	for _, c := range []struct {
		name, link string
		lines      []string
	}{
		{"python3 alone", "/usr/bin/python3", []string{"usr/bin/python3.11=#!", "usr/bin/python3->python3.11"}},
		{"python, too", "", []string{"usr/bin/python3=#!", "usr/bin/python=#!"}},
		{"an administrator's", "", []string{"usr/bin/python3=#!", "usr/local/bin/python=#!"}},
		{"none", "", []string{"usr/bin/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := fakeHost(t, c.lines...)
			for _, p := range []string{"usr/bin/python3.11", "usr/bin/python3", "usr/bin/python", "usr/local/bin/python"} {
				_ = os.Chmod(filepath.Join(host, p), 0o755) // those that are there
			}
			r, err := build(t, host, HostOptions{Programs: true})
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(r.Sandbox().Dir.Name(), sandbox.ProgramDir)
			if to, _ := os.Readlink(filepath.Join(at, "python")); to != c.link {
				t.Errorf("python leads to %q, want %q", to, c.link)
			}
			if plain, err := build(t, host, HostOptions{}); err != nil {
				t.Error(err)
			} else if _, err := os.Lstat(filepath.Join(plain.Sandbox().Dir.Name(), sandbox.ProgramDir)); err == nil {
				t.Error("it is there unasked")
			}
		})
	}
}

// TestHostLayouts holds the ways in which distributions lay out their roots.
func TestHostLayouts(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		binds []string
		links map[string]string
		err   error
	}{
		{name: "merged", lines: []string{"usr/bin/", "bin->usr/bin", "lib->/usr/lib"}, binds: []string{"/usr"}, links: map[string]string{"/bin": "-> usr/bin", "/lib": "-> /usr/lib"}},
		{name: "separate, as Alpine and old Debian", lines: []string{"usr/bin/", "bin/sh=", "sbin/", "lib/", "lib64/"}, binds: []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"}},
		{name: "lib64 is a link to lib", lines: []string{"usr/bin/", "lib/", "lib64->lib"}, binds: []string{"/usr", "/lib"}, links: map[string]string{"/lib64": "-> lib"}},
		{name: "sbin merged into bin, as Arch and Fedora", lines: []string{"usr/bin/", "usr/sbin->bin", "bin->usr/bin", "sbin->usr/bin"}, binds: []string{"/usr"}, links: map[string]string{"/sbin": "-> usr/bin"}},
		{name: "usr is a link", lines: []string{"system/usr/bin/", "usr->/system/usr"}, binds: []string{"/usr"}},
		{name: "no usr", lines: []string{"bin/"}, err: sandbox.ErrUnsupported},
		{name: "bin leads to an unknown place", lines: []string{"usr/", "bin->run/current/bin"}, err: sandbox.ErrUnsupported},
		{name: "bin leads out by dots", lines: []string{"usr/", "bin->usr/../home/alice"}, err: sandbox.ErrUnsupported},
		{name: "bin is a file", lines: []string{"usr/", "bin=x"}, err: sandbox.ErrUnavailable},
		{name: "etc is a link into the root itself", lines: []string{"usr/", "etc->/system/etc", "system/etc/magic=m"}, binds: []string{"/usr"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := build(t, fakeHost(t, tt.lines...), HostOptions{})
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if err != nil {
				if sandbox.Hint(err) == "" {
					t.Errorf("no hint in %v", err)
				}
				return
			}
			var binds []string
			tree := list(t, r.Sandbox().Dir.Name())
			for _, b := range r.Sandbox().Binds {
				binds = append(binds, b.Target)
				if !strings.HasPrefix(tree[b.Target], "d") {
					t.Errorf("no directory to mount %s on", b.Target)
				}
			}
			if diff := cmp.Diff(tt.binds, binds); diff != "" {
				t.Error(diff)
			}
			for at, want := range tt.links {
				if tree[at] != want {
					t.Errorf("%s: got %q, want %q", at, tree[at], want)
				}
			}
		})
	}
}

func TestTargets(t *testing.T) {
	root := fakeHost(t, append([]string{"usr/share/there/", "usr/share/file=x"}, debian...)...)
	dir, file := func(p string) Target { return Target{p, true} }, func(p string) Target { return Target{p, false} }
	tests := []struct {
		name    string
		targets []Target
		made    map[string]string // beyond the usual
		err     error
	}{
		{name: "usual ones need nothing", targets: []Target{dir("/home/user"), dir("/tmp"), dir("/data"), dir("/dev/shm")}},
		{name: "below a scratch needs nothing", targets: []Target{dir("/home/user"), file("/home/user/a/b.csv"), dir("/home/user/c")}},
		{name: "order does not matter", targets: []Target{file("/home/user/b.csv"), dir("/home/user")}},
		{name: "a file in place of a usual one", targets: []Target{file("/data"), dir("/work")}, made: map[string]string{"/data": "-rw-r--r-- "}},
		{name: "below a file in place of a usual one", targets: []Target{file("/data"), dir("/data/x")}, err: sandbox.ErrInvalid},
		{name: "a file", targets: []Target{file("/data/in/b.csv")}, made: map[string]string{"/data/in": "drwxr-xr-x", "/data/in/b.csv": "-rw-r--r-- "}},
		{name: "a directory elsewhere", targets: []Target{dir("/deep/er/est")}, made: map[string]string{"/deep": "drwxr-xr-x", "/deep/er": "drwxr-xr-x", "/deep/er/est": "drwxr-xr-x"}},
		{name: "twice the same", targets: []Target{dir("/new"), dir("/new")}, made: map[string]string{"/new": "drwxr-xr-x"}},
		{name: "on a synthetic file", targets: []Target{file("/etc/hosts")}},
		{name: "in usr where it is", targets: []Target{dir("/usr/share/there"), file("/usr/share/file")}},
		{name: "in usr where it is not", targets: []Target{dir("/usr/share/nowhere")}, err: sandbox.ErrInvalid},
		{name: "in usr with the wrong kind", targets: []Target{file("/usr/share/there")}, err: sandbox.ErrInvalid},
		{name: "through a link", targets: []Target{file("/bin/tool")}, err: sandbox.ErrInvalid},
		{name: "on a link", targets: []Target{dir("/var/run")}, err: sandbox.ErrInvalid},
		{name: "through a copied link", targets: []Target{file("/etc/os-release/x")}, err: sandbox.ErrInvalid},
		{name: "a file on a directory", targets: []Target{file("/home/user")}, err: sandbox.ErrInvalid},
		{name: "a directory on a file", targets: []Target{dir("/etc/magic")}, err: sandbox.ErrInvalid},
		{name: "file and directory", targets: []Target{dir("/x"), file("/x")}, err: sandbox.ErrInvalid},
		{name: "below a file", targets: []Target{file("/x"), file("/x/y")}, err: sandbox.ErrInvalid},
		{name: "root", targets: []Target{dir("/")}, err: sandbox.ErrInvalid},
		{name: "proc", targets: []Target{dir("/proc")}, err: sandbox.ErrInvalid},
		{name: "in sys", targets: []Target{file("/sys/kernel/x")}, err: sandbox.ErrInvalid},
		{name: "in dev", targets: []Target{file("/dev/null")}, err: sandbox.ErrInvalid},
		{name: "relative", targets: []Target{dir("data")}, err: sandbox.ErrInvalid},
		{name: "empty", targets: []Target{dir("")}, err: sandbox.ErrInvalid},
		{name: "dots", targets: []Target{dir("/data/../etc")}, err: sandbox.ErrInvalid},
		{name: "slash at the end", targets: []Target{dir("/data/")}, err: sandbox.ErrInvalid},
		{name: "NUL", targets: []Target{dir("/da\x00ta")}, err: sandbox.ErrInvalid},
		{name: "newline", targets: []Target{dir("/da\nta")}, err: sandbox.ErrInvalid},
		{name: "not UTF-8", targets: []Target{dir("/da\xffta")}, err: sandbox.ErrInvalid},
		{name: "long component", targets: []Target{dir("/" + strings.Repeat("x", 256))}, err: sandbox.ErrInvalid},
		{name: "long path", targets: []Target{dir(strings.Repeat("/x", 2048))}, err: sandbox.ErrInvalid},
	}
	plain, err := build(t, root, HostOptions{})
	must(t, err)
	usual := list(t, plain.Sandbox().Dir.Name())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := build(t, root, HostOptions{Targets: tt.targets})
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if err != nil {
				if sandbox.Hint(err) == "" {
					t.Errorf("no hint in %v", err)
				}
				return
			}
			made := list(t, r.Sandbox().Dir.Name())
			for at, what := range usual {
				if made[at] == what {
					delete(made, at)
				}
			}
			if diff := cmp.Diff(tt.made, made, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOptionsAreRefused(t *testing.T) {
	root := fakeHost(t, "usr/bin/")
	user := func(change func(*sandbox.User)) HostOptions {
		u := sandbox.DefaultUser()
		change(&u)
		return HostOptions{User: u}
	}
	for name, o := range map[string]HostOptions{
		"a second account by newline": user(func(u *sandbox.User) { u.Name = "user\nroot2:x:0:0" }),
		"a second field by colon":     user(func(u *sandbox.User) { u.Name = "user:x" }),
		"no name":                     user(func(u *sandbox.User) { u.Name = "" }),
		"home with a colon":           user(func(u *sandbox.User) { u.Home = "/home/u:x" }),
		"home with a newline":         user(func(u *sandbox.User) { u.Home = "/home/u\nx" }),
		"relative home":               user(func(u *sandbox.User) { u.Home = "home" }),
		"negative uid":                user(func(u *sandbox.User) { u.UID = -1 }),
		"huge gid":                    user(func(u *sandbox.User) { u.GID = 1 << 31 }),
		"host name with a newline":    {Hostname: "a\n127.0.0.1 b"},
		"host name with a space":      {Hostname: "a b"},
		"long host name":              {Hostname: strings.Repeat("x", 65)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := build(t, root, o); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
	if _, err := Host(t.Context(), HostOptions{root: root}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("without a cache: got %v, want ErrInvalid", err)
	}
}

func TestToolchains(t *testing.T) {
	root := fakeHost(t, "usr/local/go/bin/")
	outer := fakeHost(t, "opt/node/bin/", "opt/flat/tool=", "home/user/.pyenv/3.12/bin/")
	toolchain := func(at, real string) *hostpath.Source {
		f, err := os.Open(filepath.Join(outer, at))
		must(t, err)
		t.Cleanup(func() { f.Close() })
		info, _ := f.Stat()
		return &hostpath.Source{File: f, Name: real, Real: real, Dir: info.IsDir()}
	}
	r, err := build(t, root, HostOptions{
		Targets: []Target{{"/home/user", true}, {"/tmp", true}},
		Toolchains: []*hostpath.Source{
			toolchain("opt/node", "/opt/node"), toolchain("opt/flat", "/opt/flat"), toolchain("opt/node", "/usr/local/go"),
			toolchain("home/user/.pyenv/3.12", "/home/user/.pyenv/3.12"),
		},
	})
	must(t, err)
	want := append([]string{"/opt/node/bin", "/opt/flat", "/usr/local/go/bin", "/home/user/.pyenv/3.12/bin"}, usualPath...)
	if diff := cmp.Diff(want, r.Path); diff != "" {
		t.Errorf("PATH: %s", diff)
	}
	targets := func(ms []sandbox.Mount) (out []string) {
		for _, m := range ms {
			if m.Access != sandbox.ReadOnly {
				t.Errorf("%s is not read-only", m.Target)
			}
			out = append(out, m.Target)
		}
		return
	}
	if diff := cmp.Diff([]string{"/usr", "/opt/node", "/opt/flat"}, targets(r.Sandbox().Binds)); diff != "" {
		t.Errorf("binds: %s", diff)
	}
	if diff := cmp.Diff([]string{"/home/user/.pyenv/3.12"}, targets(r.Mounts())); diff != "" {
		t.Errorf("late mounts: %s", diff)
	}
	for _, at := range []string{"/opt/node", "/opt/flat"} {
		if _, err := os.Stat(r.Sandbox().Dir.Name() + at); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []*hostpath.Source{toolchain("opt/flat/tool", "/opt/flat/tool"), toolchain("opt/node", "/opt/a:b"), toolchain("opt/node", "/proc/1/root/x"), toolchain("opt/node", "/opt/a\nb")} {
		if _, err := build(t, root, HostOptions{Toolchains: []*hostpath.Source{bad}}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", bad.Real, err)
		}
	}
}

// TestThisHost builds the skeleton of the machine the test runs on.
func TestThisHost(t *testing.T) {
	r, err := build(t, "", HostOptions{})
	must(t, err)
	dir := r.Sandbox().Dir.Name()
	for at, what := range list(t, dir) {
		if strings.Contains(what, "PRIVATE KEY-----") {
			t.Errorf("%s holds a private key", at)
		}
	}
	for _, gone := range []string{"shadow", "gshadow", "sudoers", "ssh", "ssl/private", "fstab", "apt/sources.list", "apt/sources.list.d", "apt/auth.conf.d", "pip.conf"} {
		if _, err := os.Lstat(filepath.Join(dir, "etc", gone)); err == nil {
			t.Errorf("/etc/%s is shown", gone)
		}
	}
	host, err := os.ReadFile("/etc/machine-id")
	if inside, err2 := os.ReadFile(filepath.Join(dir, "etc/machine-id")); err2 != nil || err == nil && string(host) == string(inside) {
		t.Errorf("machine-id: %q, %v", inside, err2)
	}
}
