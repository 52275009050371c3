// SPDX-License-Identifier: Apache-2.0

//go:build linux

package router

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const inside = "CAISSON_TEST_CONFINED"

// attempts are what a router that was taken over would try. Each gives nil when
// it worked.
func attempts() map[string]func() error {
	open := func(path string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(path, flags, 0o600)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	socket := func(family, kind, proto int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind, proto)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	return map[string]func() error{
		"start a program":         func() error { return exec.Command("/bin/true").Run() },
		"write a file":            open("/tmp/caisson-confined-test", unix.O_WRONLY|unix.O_CREAT),
		"read a file of the host": open("/proc/version", unix.O_RDONLY),
		"list a directory":        open("/usr", unix.O_RDONLY|unix.O_DIRECTORY),
		"read an account's file":  open("/etc/shadow", unix.O_RDONLY),
		"signal the parent":       func() error { return unix.Kill(os.Getppid(), 0) },
		"signal its thread":       func() error { return unix.Tgkill(os.Getppid(), os.Getppid(), 0) },
		"trace":                   func() error { return unix.PtraceSeize(os.Getppid()) },
		"open a unix socket":      socket(unix.AF_UNIX, unix.SOCK_STREAM, 0),
		"open a raw socket":       socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		"open a packet socket":    socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
		"open a vsock":            socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"watch the host's audit":  socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
		"map code": func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
			return err
		},
		"listen": func() error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err == nil {
				l.Close()
			}
			return err
		},
		"become root": func() error { _, _, e := unix.RawSyscall(unix.SYS_SETUID, 0, 0, 0); return zero(e) },
		"a namespace": func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"a process": func() error {
			p, _, e := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
			exitChild(p, e)
			return zero(e)
		},
		"raise a limit":  func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) },
		"a BPF program":  func() error { _, _, e := unix.RawSyscall(unix.SYS_BPF, 0, 0, 0); return knownFailures(e) },
		"io_uring":       func() error { _, _, e := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return knownFailures(e) },
		"another's read": func() error { _, err := unix.ProcessVMReadv(os.Getppid(), nil, nil, 0); return err },
	}
}

func zero(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// knownFailures counts a call that was heard, whatever it said to its arguments.
func knownFailures(e syscall.Errno) error {
	if e == unix.EPERM || e == unix.ENOSYS {
		return e
	}
	return nil
}

func exitChild(pid uintptr, e syscall.Errno) {
	if pid == 0 && e == 0 {
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
}

// closedRouter is how a router is confined that lets nothing through.
const closedRouter = "closed"

// reaching are attempts to use the network, beside those that no router may make. sock is
// a socket from before.
func reaching(sock int) map[string]func() error {
	to := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}
	return map[string]func() error{
		"make a socket":   func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); return err },
		"connect one":     func() error { return unix.Connect(sock, to) },
		"send a datagram": func() error { return unix.Sendto(sock, []byte("x"), 0, to) },
		"bind one":        func() error { return unix.Bind(sock, &unix.SockaddrInet4{}) },
		"list interfaces": func() error { _, err := net.InterfaceAddrs(); return err },
	}
}

// try prints the attempts that worked.
func try(how string) {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		fmt.Println("a socket:", err)
		return
	}
	if how != "no" {
		uid := 0
		if os.Geteuid() == 0 {
			uid = 0x70001234
		}
		if err := confine(uid, how == closedRouter); err != nil {
			fmt.Println("confine:", err)
			return
		}
	}
	for name, do := range attempts() {
		if do() == nil {
			fmt.Println(name)
		}
	}
	if how == closedRouter {
		for name, do := range reaching(sock) {
			if do() == nil {
				fmt.Println(name)
			}
		}
		return
	}
	// What a router needs.
	for name, do := range map[string]func() error{
		"the resolver's files": func() error { _, err := os.ReadFile("/etc/resolv.conf"); return notThere(err) },
		"interfaces":           func() error { _, err := net.InterfaceAddrs(); return err },
		"a socket": func() error {
			_, err := net.Dial("tcp", "127.0.0.1:1")
			if errors.Is(err, unix.ECONNREFUSED) {
				return nil
			}
			return err
		},
	} {
		if err := do(); err != nil {
			fmt.Println("cannot have", name, err)
		}
	}
}

func notThere(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func TestConfined(t *testing.T) {
	run := func(how string) string {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), inside+"="+how)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		return strings.TrimSpace(out.String())
	}
	t.Cleanup(func() { os.Remove("/tmp/caisson-confined-test") })
	if got := run("yes"); got != "" {
		t.Errorf("it can:\n%s", got)
	}
	if got := run(closedRouter); got != "" {
		t.Errorf("one that is closed can:\n%s", got)
	}
	// The attempts work where nothing is in their way.
	if got := run("no"); os.Geteuid() == 0 && strings.Count(got, "\n") < len(attempts())-8 {
		t.Errorf("without being confined it can only:\n%s", got)
	}
}
