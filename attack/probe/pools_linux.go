// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"os/signal"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leases are taken on a file that may only be read; the host opens it then.
func (p *prober) leases() {
	signal.Ignore(unix.SIGIO) // the host's open asks for the lease
	fd := p.open(AtData+"/F25", unix.O_RDONLY)
	if fd < 0 {
		return
	}
	for _, l := range []struct {
		name string
		kind int
	}{{"write", unix.F_WRLCK}, {"read", unix.F_RDLCK}} {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, l.kind)
		p.try("take a "+l.name+" lease on it", err)
		if err == nil {
			return // one at a time
		}
	}
}

// pools asks for a little of what the kernel has one pool of for the whole machine.
func (p *prober) pools() {
	p.socketFilters()
	p.encapsulation()
	p.flowLabel()
	p.hugePages()
	p.ownFilter()
}

// allowAll is a filter that lets everything pass.
var allowAll = [...]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}

func program() *unix.SockFprog {
	return &unix.SockFprog{Len: uint16(len(allowAll)), Filter: &allowAll[0]}
}

func (p *prober) socketFilters() {
	for name, option := range map[string]int{"SO_ATTACH_FILTER": unix.SO_ATTACH_FILTER, "SO_ATTACH_REUSEPORT_CBPF": unix.SO_ATTACH_REUSEPORT_CBPF} {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			p.held = append(p.held, fd)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option, program())
		}
		p.try(name, err)
	}
}

// encapsulation turns on a path that datagrams of all programs take then.
func (p *prober) encapsulation() {
	const encapL2TP = 3
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		p.held = append(p.held, fd)
		err = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_ENCAP, encapL2TP)
	}
	p.try("UDP_ENCAP", err)
}

func (p *prober) flowLabel() {
	const manager = 32 // IPV6_FLOWLABEL_MGR
	request := struct {
		to                     [16]byte
		label                  uint32
		action, share          uint8
		flags, expires, linger uint16
		_                      uint32
	}{to: [16]byte{15: 1}, share: 1, flags: 1} // exclusive, to be made
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		p.held = append(p.held, fd)
		_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_IPV6, manager, uintptr(unsafe.Pointer(&request)), unsafe.Sizeof(request), 0)
		p.hold0("an IPv6 flow label", errno)
		return
	}
	p.try("a socket of IPv6", err)
}

// hugePages asks for no page, which there may not be, but for files of them.
func (p *prober) hugePages() {
	fd, err := unix.MemfdCreate("K21", unix.MFD_HUGETLB|unix.MFD_CLOEXEC)
	p.holdErr("a memfd of huge pages", fd, err)
	const shmHugeTLB = 0o4000
	id, _, errno := unix.Syscall(unix.SYS_SHMGET, 0, 2<<20, shmHugeTLB|unix.IPC_CREAT|0o600)
	p.hold0("shared memory of huge pages", errno)
	if errno == 0 {
		_, _, _ = unix.Syscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0)
	}
}

func (p *prober) ownFilter() {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		p.try("no_new_privs", err)
		return
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(program())))
	p.hold0("a system call filter of its own", errno)
}
