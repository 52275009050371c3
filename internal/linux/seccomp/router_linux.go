// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Router is the filter for a program of ours, written in Go, that moves bytes between
// sockets and reads packets of untrusted code: sockets of TCP, UDP and the list of
// interfaces, reading files, threads. It starts no process, makes no memory
// executable, and writes no file. pid is the process's own, the only one it may
// signal: the Go runtime signals its threads. One that is closed makes and connects no
// socket at all; it has those that it was started with.
//
// Everything else answers EPERM, which the runtime gets along with.
func Router(goarch string, pid int, closed bool) ([]unix.SockFilter, error) {
	if goarch != "amd64" && goarch != "arm64" {
		return nil, fmt.Errorf("no system call filter for %s", goarch)
	}
	l, err := newList(goarch, routerGroups(pid, closed), errno(unix.EPERM))
	if err != nil {
		return nil, err
	}
	return l.assemble()
}

func routerGroups(pid int, closed bool) []group {
	groups := []group{
		{allow, `read write readv writev pread64 close fstat newfstatat lseek getdents64 readlinkat
			epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 pipe2`},
		{allow, `recvfrom recvmsg shutdown`},
		{allow, `munmap brk madvise futex sched_yield sched_getaffinity sigaltstack rt_sigaction
			rt_sigprocmask rt_sigreturn gettid getpid nanosleep clock_nanosleep clock_gettime gettimeofday
			getrandom exit exit_group restart_syscall set_robust_list rseq uname`},
		{refuseBits(2, unix.PROT_EXEC), `mmap mprotect`},
		{refuseBits(2, unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_APPEND), `openat`},
		{among(0, 0, []uint32{uint32(pid)}, allow, errno(unix.EPERM)), `tgkill`},
		{among(0, 0, []uint32{unix.PR_SET_VMA}, allow, errno(unix.EPERM)), `prctl`}, // names of the runtime's memory
		// Threads, no processes.
		{verdict{test: &test{mask: unix.CLONE_THREAD, then: allow, not: errno(unix.EPERM)}}, `clone`},
		{errno(unix.ENOSYS), `clone3`},
		{fcntlVerdict(), `fcntl`},
	}
	if closed {
		return groups
	}
	return append(groups,
		group{allow, `connect bind getsockname getpeername getsockopt sendto sendmsg`},
		group{routerSocket(), `socket`},
		group{setsockoptVerdict(), `setsockopt`},
	)
}

// routerSocket is socketVerdict without what is local.
func routerSocket() verdict {
	const typeMask = 0xf
	no := errno(unix.EPERM)
	internet := among(1, typeMask, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM},
		among(2, 0, []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}, allow, no), no)
	interfaces := among(2, 0, []uint32{unix.NETLINK_ROUTE}, allow, no)
	return among(0, 0, []uint32{unix.AF_INET, unix.AF_INET6}, internet,
		among(0, 0, []uint32{unix.AF_NETLINK}, interfaces, no))
}
