// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// seat is the thread that makes a sandbox and stays with it: when it ends the
// sandbox does, too (prctl(2), PR_SET_PDEATHSIG).
//
// It is taken before anything else is done for a sandbox, because it makes the
// sandbox's network namespace meanwhile, with the device in it where there is one:
// the dearest of them, which nothing else has to wait for. The builder is born in it.
// Only root's thread may do that; for others the builder makes it, and the device
// with the rights that it has in a namespace of its own user namespace.
//
// The namespace belongs to the host's user namespace then, which gives code inside
// less: whoever had capabilities in the sandbox's own, or in one made below it,
// would have none over its network, whose files in /proc/sys belong to the host's
// root, and nsfs tells nothing of the owner (ns_get_owner in kernel/nsfs.c). One
// thing is more: the kernel tells such namespaces of the host's devices, as it
// does no others (lib/kobject_uevent.c). Who may listen is the system call
// filter's, which has no NETLINK_KOBJECT_UEVENT; the escape suite asks (K05).
type seat struct {
	work chan func(*network) // one, or closed without
	left sync.Once
}

func takeSeat(ahead bool, wire *sandbox.Network) *seat {
	s := &seat{work: make(chan func(*network), 1)}
	go func() {
		runtime.LockOSThread() // new threads are not made from this one, whose namespace they would be in
		var n *network
		if ahead {
			n = enterNetwork(wire)
		}
		if work, ok := <-s.work; ok {
			work(n)
		}
		if n.leave() {
			runtime.UnlockOSThread()
		} // else the thread ends here, and nobody is ever on it again
	}()
	return s
}

// do has the thread work, once.
func (s *seat) do(work func(*network)) { s.work <- work }

// leave says that there is nothing more to do. It may be called twice.
func (s *seat) leave() { s.left.Do(func() { close(s.work) }) }

// network is a network namespace of its own that a thread is in.
type network struct {
	home *os.File // the one that it was in before; nil once it is there again
	lost bool     // it cannot go back
}

// enterNetwork moves the calling thread to a new network namespace, whose
// loopback is up, and the device too if there is a wire. Where that cannot be it is
// nil: then the builder tries.
func enterNetwork(wire *sandbox.Network) *network {
	home, err := ownNetwork()
	if err != nil {
		return nil
	}
	if leaveNetwork() != nil {
		home.Close()
		return nil
	}
	n := &network{home: home}
	if loopbackUp() != nil || deviceUp(wire) != nil {
		n.leave()
		if n.lost {
			return n
		}
		return nil
	}
	return n
}

// ownNetwork is the network namespace that the calling thread is in, which a new socket
// tells (SIOCGSKNS, since Linux 4.10; it wants CAP_NET_ADMIN there, as a loopback
// does). By its name in /proc/thread-self it would be dearer: see ARCHITECTURE.md,
// "Nothing is looked up below a thread's name".
func ownNetwork() (*os.File, error) {
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(sock)
	ns, err := unix.IoctlRetInt(sock, unix.SIOCGSKNS)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(ns), "network namespace"), nil
}

// leaveNetwork makes the namespace. Tests leave it out.
var leaveNetwork = func() error { return unix.Unshare(unix.CLONE_NEWNET) }

// deviceUp makes the device of a wire, and gives its descriptor to the router.
func deviceUp(wire *sandbox.Network) error {
	if wire == nil {
		return nil
	}
	device, err := tun.Config{Address: wire.Address, Gateway: wire.Gateway, MTU: wire.MTU}.Make()
	if err != nil {
		return err
	}
	defer device.Close()
	return unix.Sendmsg(int(wire.NIC.Fd()), []byte{0}, unix.UnixRights(int(device.Fd())), nil, unix.MSG_NOSIGNAL)
}

func loopbackUp() error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, up)
}

// usable reports whether the thread's children are born in a namespace of their own.
func (n *network) usable() bool { return n != nil && n.home != nil && !n.lost }

// leave moves the thread back. It is called by that thread, more than once.
func (n *network) leave() (back bool) {
	if n == nil || n.home == nil {
		return n == nil || !n.lost
	}
	n.lost = unix.Setns(int(n.home.Fd()), unix.CLONE_NEWNET) != nil
	n.home.Close()
	n.home = nil
	return !n.lost
}
