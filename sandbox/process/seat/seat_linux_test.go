// SPDX-License-Identifier: Apache-2.0

package seat

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/tun"
)

var device = tun.Config{Address: [4]byte{198, 18, 0, 2}, Gateway: [4]byte{198, 18, 0, 1}, MTU: 1500}

// A sandbox has the device that it is to have, or none.
func TestTake(t *testing.T) {
	asRoot(t)
	for _, v := range []struct {
		name    string
		want    *tun.Config
		devices []string
		mtu     int
	}{
		{name: "no wire", devices: []string{"lo"}},
		{name: "a wire", want: &device, devices: []string{"lo", tun.Name}, mtu: 1500},
	} {
		t.Run(v.name, func(t *testing.T) {
			wire, router := wired(t, v.want)
			s := Take(Unshare, wire)
			defer s.Leave()
			seen := make(chan seen)
			s.Do(func(n *Network) { seen <- look(n) })
			got := <-seen
			if !got.usable || got.ns == home || !slices.Equal(got.devices, v.devices) || got.mtu != v.mtu {
				t.Errorf("%+v, want %v with packets of %d bytes", got, v.devices, v.mtu)
			}
			if v.want != nil && !hasDevice(t, router) {
				t.Error("the router has no device")
			}
		})
	}
	allHome(t)
}

// Two sandboxes have two namespaces.
func TestApart(t *testing.T) {
	asRoot(t)
	one, other := Take(Unshare, nil), Take(Unshare, nil)
	seen := make(chan seen)
	var where [2]string
	for i, s := range []*Seat{one, other} {
		s.Do(func(n *Network) { seen <- look(n) })
		where[i] = (<-seen).ns
		defer s.Leave()
	}
	if where[0] == where[1] || where[0] == "" {
		t.Errorf("both are in %q", where)
	}
}

// Who may not make a namespace gets a thread all the same, and whose router is gone one
// that is back: then the builder makes both, or says why not.
func TestUnusable(t *testing.T) {
	wire, router := wired(t, &device)
	wire.Router.Close()
	router.Close()
	for name, s := range map[string]*Seat{
		"nobody's":       Take(nil, nil),
		"refused":        Take(func() error { return unix.EPERM }, nil),
		"without router": Take(Unshare, wire),
	} {
		seen := make(chan seen)
		s.Do(func(n *Network) { seen <- look(n) })
		if got := <-seen; got.usable || got.ns != home {
			t.Errorf("%s: %+v", name, got)
		}
		s.Leave()
	}
	allHome(t)
}

// What is never used goes, and is home before.
func TestLeave(t *testing.T) {
	asRoot(t)
	s := Take(Unshare, nil)
	s.Leave()
	s.Leave()
	allHome(t)
}

// The process's first thread is no seat: /proc/self tells of its namespaces. With one
// processor it is likely to be the one that has time, where main has asked.
func TestFirstThread(t *testing.T) {
	asRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), firstVariable+"=yes", "GOMAXPROCS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

const firstVariable = "CAISSON_TEST_FIRST_THREAD"

func TestMain(m *testing.M) {
	if os.Getenv(firstVariable) == "" {
		os.Exit(m.Run())
	}
	for range 20 {
		s := Take(Unshare, nil)
		seen := make(chan seen)
		var process string
		s.Do(func(n *Network) {
			process, _ = os.Readlink("/proc/self/ns/net")
			seen <- look(n)
		})
		if got := <-seen; !got.usable || got.ns == home || process != home {
			fmt.Fprintf(os.Stderr, "the process is in %s, a sandbox in %s, and home is %s\n", process, got.ns, home)
			os.Exit(1)
		}
		s.Leave()
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root's thread makes a network namespace; others' are in the tests of the process level")
	}
}

// wired is a wire with that device, and the router's end of its socket.
func wired(t *testing.T, device *tun.Config) (*Wire, *os.File) {
	t.Helper()
	if device == nil {
		return nil, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "nic"), os.NewFile(uintptr(fds[1]), "router")
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	return &Wire{Device: *device, Router: ours}, theirs
}

func hasDevice(t *testing.T, router *os.File) bool {
	t.Helper()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(router.Fd()), make([]byte, 8), oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	defer unix.Close(got[0])
	path, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(got[0])))
	return err == nil && path == tun.Path
}

// seen is what a thread has around it.
type seen struct {
	usable  bool
	ns      string
	devices []string
	mtu     int // of the wire's device; 0 without
}

func look(n *Network) (s seen) {
	s.usable = n.Usable()
	s.ns, _ = os.Readlink("/proc/" + strconv.Itoa(unix.Gettid()) + "/ns/net")
	list, _ := net.Interfaces()
	for _, i := range list {
		s.devices = append(s.devices, i.Name)
		if i.Name == tun.Name {
			s.mtu = i.MTU
		}
	}
	return s
}

// home is where we were before any thread left.
var home, _ = os.Readlink("/proc/self/ns/net")

// allHome fails where a thread stays in another namespace than ours. One that has just
// begun to come home is given the time to.
func allHome(t *testing.T) {
	t.Helper()
	for range 1000 {
		names, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		if !slices.ContainsFunc(names, func(name string) bool {
			ns, err := os.Readlink(name)
			return err == nil && ns != home
		}) {
			return
		}
	}
	t.Error("a thread is in another network namespace")
}
