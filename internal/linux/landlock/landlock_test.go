// SPDX-License-Identifier: Apache-2.0

package landlock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inside makes the test binary a program in a ruleset: its argument are the ABI
// and a directory, in which ro may be read, rw written, and nothing else.
const inside = "CAISSON_TEST_INSIDE"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(inside); ok {
		var abi int
		fmt.Sscan(os.Args[1], &abi)
		try(abi, dir, os.Args[2])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// memory is a descriptor of a memfd, as an agent is executed from.
const memory = 77

// try prints the attempts that the kernel refused.
func try(abi int, dir, abstract string) {
	runtime.LockOSThread() // Landlock is a thread's
	path := func(name string) string { return filepath.Join(dir, name) }
	if fd, err := unix.MemfdCreate("program", 0); err != nil || unix.Dup3(fd, memory, 0) != nil {
		os.Exit(1)
	}
	if abi > 0 {
		if err := enter(abi, path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	open := func(name string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(path(name), flags, 0o600)
			unix.Close(fd)
			return err
		}
	}
	for _, a := range []struct {
		name string
		do   func() error
	}{
		{"read outside", open("outside", unix.O_RDONLY)},
		{"read in ro", open("ro/file", unix.O_RDONLY)},
		{"write in ro", open("ro/file", unix.O_WRONLY)},
		{"make in ro", open("ro/new", unix.O_WRONLY|unix.O_CREAT)},
		{"truncate in ro", func() error { return unix.Truncate(path("ro/file"), 0) }},
		{"write in rw", open("rw/file", unix.O_WRONLY)},
		{"make in rw", open("rw/new", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)},
		{"truncate in rw", func() error { return unix.Truncate(path("rw/file"), 0) }},
		{"move in rw", func() error { return unix.Rename(path("rw/new"), path("rw/dir/new")) }},
		{"link ro to rw", func() error { return unix.Link(path("ro/file"), path("rw/link")) }},
		{"make a device in rw", func() error { return unix.Mknod(path("rw/null"), unix.S_IFCHR|0o600, 0x103) }},
		{"execute a memfd", func() error {
			// Not executable code: the kernel must get as far as to see that.
			err := unix.Exec(fmt.Sprint("/proc/self/fd/", memory), []string{"x"}, nil)
			if errors.Is(err, unix.ENOEXEC) {
				err = nil
			}
			return err
		}},
		{"write /dev/null", func() error { _, err := unix.Open("/dev/null", unix.O_WRONLY, 0); return err }},
		{"mount", func() error { return unix.Mount("none", path("rw"), "tmpfs", 0, "") }},
		{"bind TCP", func() error {
			fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		}},
		{"connect TCP", func() error {
			fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 1})
			if errors.Is(err, unix.ECONNREFUSED) {
				err = nil // it got there
			}
			return err
		}},
		{"signal the parent", func() error { return unix.Kill(os.Getppid(), 0) }},
		{"connect abstract", func() error {
			fd, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			return unix.Connect(fd, &unix.SockaddrUnix{Name: abstract})
		}},
	} {
		if err := a.do(); err != nil {
			fmt.Printf("%s: %v\n", a.name, err)
		}
	}
}

// enter does what a driver's child does.
func enter(abi int, path func(string) string) error {
	var o Options
	for name, access := range map[string]Access{path("ro"): Read, "/dev/null": Device} {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		o.Paths = append(o.Paths, Path{FD: fd, Access: access})
	}
	o.Paths = append(o.Paths, Path{FD: memory, Access: Read})
	r, err := newFor(abi, o)
	if err != nil {
		return err
	}
	rule := r.Rule(Write, true)
	fd, err := unix.Open(path("rw"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	rule.Parent_fd = int32(fd)
	if _, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, r.FD(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, r.FD(), r.Flags(), 0); errno != 0 {
		return errno
	}
	runtime.KeepAlive(r)
	return nil
}

// With each ABI this kernel knows, exactly what that ABI can refuse is refused.
func TestKernel(t *testing.T) {
	const (
		denied = ": permission denied"
		never  = ": operation not permitted"
	)
	all := []struct {
		abi  int
		line string
	}{
		{oldest, "read outside" + denied},
		{oldest, "write in ro" + denied},
		{oldest, "make in ro" + denied},
		{3, "truncate in ro" + denied},
		{oldest, "link ro to rw: invalid cross-device link"}, // would widen what may be done with the file
		{oldest, "make a device in rw" + denied},
		{oldest, "mount" + never},
		{4, "bind TCP" + denied},
		{4, "connect TCP" + denied},
		{6, "signal the parent" + never},
		{6, "connect abstract" + never},
	}
	if ABI() < oldest {
		t.Skip("needs a kernel with Landlock")
	}
	for abi := oldest; abi <= ABI(); abi++ {
		t.Run(fmt.Sprint("ABI ", abi), func(t *testing.T) {
			var want []string
			for _, a := range all {
				if abi >= a.abi {
					want = append(want, a.line)
				}
			}
			if got := attempt(t, abi); !slices.Equal(got, want) {
				t.Errorf("refused\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	if got := attempt(t, 0); os.Geteuid() == 0 && len(got) > 0 {
		t.Errorf("without a ruleset: refused %q", got)
	}
}

// attempt runs this binary in a fresh mount namespace, so that what it mounts
// when nothing stops it goes away with it.
func attempt(t *testing.T, abi int) []string {
	dir := t.TempDir()
	for _, d := range []string{"ro", "rw/dir"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"outside", "ro/file", "rw/file"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	abstract := "@caisson-landlock-" + filepath.Base(filepath.Dir(dir)) + fmt.Sprint(abi)
	l, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	exe, _ := os.Executable()
	cmd := exec.Command(exe, fmt.Sprint(abi), abstract)
	cmd.Env = []string{inside + "=" + dir}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")[:strings.Count(string(out), "\n")]
}

func TestMissing(t *testing.T) {
	if got := len(Missing(0)); got != 5 {
		t.Errorf("%d phrases about a kernel without Landlock", got)
	}
	if got := Missing(6); len(got) != 0 {
		t.Errorf("ABI 6 lacks %q", got)
	}
	if got := Missing(5); !slices.Equal(got, []string{"signals and abstract sockets across sandboxes"}) {
		t.Errorf("ABI 5 lacks %q", got)
	}
	for _, abi := range []int{0, 1} {
		if _, err := newFor(abi, Options{}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("ABI %d: %v", abi, err)
		}
	}
}
