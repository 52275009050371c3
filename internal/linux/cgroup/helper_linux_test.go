// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tests of this file and of real_linux_test.go run on whatever hierarchy
// the host has: version 1 as root, version 2 as root or as a delegated user.
// Programs that suffer a limit are this test binary, started again inside the
// group in the way that caisson starts sandboxes.

const helperEnv = "CAISSON_CGROUP_HELPER"

func TestMain(m *testing.M) {
	mode, rest, _ := strings.Cut(os.Getenv(helperEnv), " ")
	if mode == "" {
		os.Exit(m.Run())
	}
	os.Unsetenv(helperEnv)
	if err := helper(mode, strings.Fields(rest)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

func helper(mode string, args []string) error {
	switch mode {
	case "exec":
		return syscall.Exec("/bin/sh", os.Args[1:], os.Environ()) // os.Args[1:]: sh -c script
	case "alloc": // touch so many MiB
		mib, _ := strconv.Atoi(args[0])
		b, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("allocated")
		return nil
	case "burn":
		for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); { // longer than any test waits
		}
		return nil
	case "write": // 4 MiB past the page cache
		return directWrite(args[0], 4<<20)
	case "datagrams":
		return datagrams()
	case "roundtrip":
		return roundtrip(args)
	}
	return fmt.Errorf("no helper %q", mode)
}

// datagrams leaves up to 64 MiB in the buffers of sockets and prints how many
// bytes of memory they take (SK_MEMINFO_RMEM_ALLOC, linux/sock_diag.h).
func datagrams() error {
	total, block := 0, make([]byte, 60<<10)
	for range 256 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		}
		if err != nil {
			return err
		}
		self, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		for range 8 {
			_ = unix.Sendto(fd, block, 0, self) // dropped where there is no room
		}
		var info [9]uint32
		size := uint32(unsafe.Sizeof(info))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		total += int(info[0])
	}
	fmt.Println(total)
	return nil
}

// roundtrip starts a child in the group and prints where both are.
func roundtrip(dirs []string) error {
	g, err := Open(dirs)
	if err != nil {
		return err
	}
	before := read("/proc/thread-self/cgroup")
	child := exec.Command("/bin/sleep", "100")
	if err := g.Start(child); err != nil {
		return err
	}
	pids, err := g.Pids()
	if after := read("/proc/thread-self/cgroup"); after != before {
		return fmt.Errorf("was in\n%s\ncame back to\n%s", before, after)
	}
	if err != nil || len(pids) != 1 || pids[0] != child.Process.Pid {
		return fmt.Errorf("in the group: %v, %v; want the child %d alone", pids, err, child.Process.Pid)
	}
	if err := g.Kill(context.Background()); err != nil {
		return err
	}
	_ = child.Wait()
	fmt.Println("ok")
	return nil
}

func directWrite(path string, size int) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	raw := make([]byte, 256<<10+4096)
	skip := 4096 - int(uintptr(unsafe.Pointer(&raw[0]))%4096)
	for done := 0; done < size; done += 256 << 10 {
		if _, err := unix.Write(fd, raw[skip:skip+256<<10]); err != nil {
			return err
		}
	}
	return nil
}

// host is the real one; without delegation nothing here can be tried, which
// inside the test guest is a failure and elsewhere a skip with its reason.
func host(t *testing.T) *Host {
	t.Helper()
	h := Detect()
	if h.Why != "" {
		if os.Getenv("V2GUEST") != "" {
			t.Fatalf("no groups: %s (%s)", h.Why, h.Remedy)
		}
		t.Skipf("needs control groups: %s (%s)", h.Why, h.Remedy)
	}
	return h
}

var serial atomic.Int64

// group makes one that is killed and removed when the test ends.
func group(t *testing.T, h *Host, l Limits) *Group {
	t.Helper()
	g, err := h.Create(fmt.Sprintf("caisson-test-%d-%d", os.Getpid(), serial.Add(1)), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Kill(context.Background()); err != nil {
			t.Error(err)
		}
		if err := g.Remove(context.Background()); err != nil {
			t.Error(err)
		}
		for _, dir := range g.Dirs() {
			if exists(dir) {
				t.Errorf("%s is left", dir)
			}
		}
	})
	return g
}

type process struct {
	*exec.Cmd
	out bytes.Buffer
}

// start runs a helper in the group: born there on version 2, joining on 1.
func start(t *testing.T, g *Group, mode string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("/proc/self/exe", args...)}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.WaitDelay = 10 * time.Second
	p.Env = append(os.Environ(), helperEnv+"="+mode)
	if err := g.Start(p.Cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// startOutside runs a helper in our own group.
func startOutside(t *testing.T, mode string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("/proc/self/exe")}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.Env = append(os.Environ(), helperEnv+"="+mode)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}
