// SPDX-License-Identifier: Apache-2.0

// Package seat has the threads that make sandboxes of processes and stay with them:
// when such a thread ends its sandbox does, too (prctl(2), PR_SET_PDEATHSIG).
//
// A seat is taken before anything else is done for a sandbox, because it makes the
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
package seat

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/tun"
)

// Wire is a network that a sandbox is to have.
type Wire struct {
	Device tun.Config
	// Router is a socket over which the device's descriptor is sent, to who reads
	// the packets. It is the caller's to close.
	Router *os.File
}

// Seat is one thread. It is safe for use from many goroutines.
type Seat struct {
	wire chan *Wire // one, which may be nil, or closed without
	work chan func(*Network)
	left sync.Once
}

// Take gives the caller a thread for one sandbox, with the device of a wire if there is
// one. By leave it leaves the network namespace of the host, [Unshare] but in tests; it
// is nil for who may not.
func Take(leave func() error, wire *Wire) *Seat {
	s := start(leave)
	s.wire <- wire
	return s
}

func start(leave func() error) *Seat {
	s := &Seat{wire: make(chan *Wire, 1), work: make(chan func(*Network), 1)}
	go s.sit(leave)
	return s
}

// sit takes the thread. It is not the process's first, whose namespaces the kernel shows
// as the process's (/proc/self/ns/net): who looks for the host's network there, as the
// Docker level does, would find a sandbox's.
func (s *Seat) sit(leave func() error) {
	runtime.LockOSThread() // new threads are not made from this one, whose namespace they would be in
	if leave == nil || unix.Gettid() != unix.Getpid() {
		s.stay(leave)
		return
	}
	other := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(other)
		s.stay(leave)
	}()
	<-other // while this one is taken
	runtime.UnlockOSThread()
}

// stay is what the thread does.
func (s *Seat) stay(leave func() error) {
	var n *Network
	if leave != nil {
		n = enter(leave)
	}
	if wire := <-s.wire; wire != nil && !n.connect(wire) {
		n.Leave()
	}
	if work, ok := <-s.work; ok {
		work(n)
	}
	if n.Leave() {
		runtime.UnlockOSThread()
	} // else the thread ends here, and nobody is ever on it again
}

// Do has the thread work, once. The Network says what it could make.
func (s *Seat) Do(work func(*Network)) { s.work <- work }

// Leave says that there is nothing more to do. It may be called twice.
func (s *Seat) Leave() {
	s.left.Do(func() {
		close(s.wire)
		close(s.work)
	})
}

// Network is a network namespace of its own that a thread is in; nil where it could not
// be made.
type Network struct {
	home   *os.File // the one that it was in before; nil once it is there again
	lost   bool     // it cannot go back
	device *os.File // of a wire, which its router does not have yet; or nil
}

// enter moves the calling thread to a new network namespace, whose loopback is up. Where
// that cannot be it is nil, or not usable: then the builder tries.
func enter(leave func() error) *Network {
	home, err := ownNetwork()
	if err != nil {
		return nil
	}
	if leave() != nil {
		home.Close()
		return nil
	}
	n := &Network{home: home}
	if loopbackUp() != nil {
		n.Leave()
	}
	return n
}

// ownNetwork is the network namespace that the calling thread is in, which a new socket
// tells (SIOCGSKNS, since Linux 4.10; it wants CAP_NET_ADMIN there, as a loopback
// does). By its name in /proc/thread-self it would be dearer: see docs/design/process.md,
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

// Unshare moves the calling thread to a network namespace of its own.
func Unshare() error { return unix.Unshare(unix.CLONE_NEWNET) }

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

func (n *Network) makeDevice(c tun.Config) (err error) {
	n.device, err = c.Make()
	return err
}

// connect gives the descriptor of a wire's device to the router.
func (n *Network) connect(wire *Wire) bool {
	if !n.Usable() || n.makeDevice(wire.Device) != nil {
		return false
	}
	defer n.forget()
	rights := unix.UnixRights(int(n.device.Fd()))
	conn, err := wire.Router.SyscallConn() // its owner, who has failed meanwhile, may close it beside us
	if err != nil {
		return false
	}
	sent := unix.EBADF
	err = conn.Control(func(fd uintptr) {
		sent, _ = unix.Sendmsg(int(fd), []byte{0}, rights, nil, unix.MSG_NOSIGNAL).(unix.Errno)
	})
	return err == nil && sent == 0
}

// forget closes our descriptor of the device. What has no other carries nothing.
func (n *Network) forget() {
	if n.device != nil {
		n.device.Close()
		n.device = nil
	}
}

// Usable reports whether the thread's children are born in a namespace of their own.
func (n *Network) Usable() bool { return n != nil && n.home != nil && !n.lost }

// Leave moves the thread back. It is called by that thread, more than once.
func (n *Network) Leave() (back bool) {
	if n == nil || n.home == nil {
		return n == nil || !n.lost
	}
	n.forget()
	n.lost = unix.Setns(int(n.home.Fd()), unix.CLONE_NEWNET) != nil
	n.home.Close()
	n.home = nil
	return !n.lost
}
