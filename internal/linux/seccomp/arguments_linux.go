// SPDX-License-Identifier: Apache-2.0

package seccomp

import "golang.org/x/sys/unix"

// setID are the mode bits that make a program run as its owner, or a directory
// pass on its group. What code writes into a read-write mount lies on the host's
// own file system, where such a program would run as its owner for every user
// who can reach it.
const setID = unix.S_ISUID | unix.S_ISGID

// cloneVerdict refuses new namespaces: in a user namespace of its own, code has
// every capability and reaches parts of the kernel that were written for root.
// CLONE_NEWTIME shares its bit with the exit signal and works with clone3 alone.
//
// It refuses CLONE_PARENT as well: the new process would be a child of the
// caller's parent. A program's parent may be caisson itself, outside the pid
// namespace, which waits for its own children alone; and the namespace's init
// does not end before they are reaped.
func cloneVerdict() verdict {
	return refuseBits(0, unix.CLONE_NEWNS|unix.CLONE_NEWCGROUP|unix.CLONE_NEWUTS|unix.CLONE_NEWIPC|
		unix.CLONE_NEWUSER|unix.CLONE_NEWPID|unix.CLONE_NEWNET|unix.CLONE_PARENT)
}

// openVerdict judges open and openat, whose mode follows the flags and counts
// only when a file may be made; otherwise there may be anything in its place.
func openVerdict(flags uint32) verdict {
	const tmpfile = unix.O_TMPFILE &^ unix.O_DIRECTORY // O_TMPFILE is a bit and O_DIRECTORY
	return verdict{test: &test{arg: flags, mask: unix.O_CREAT | tmpfile, then: refuseBits(flags+1, setID), not: allow}}
}

// fallocateVerdict refuses modes that take room of a disk beyond a file's end, and that
// make a file longer without regard to RLIMIT_FSIZE: FALLOC_FL_KEEP_SIZE but for holes,
// and FALLOC_FL_INSERT_RANGE. Programs know the error from file systems without them.
func fallocateVerdict() verdict {
	return among(1, 0, []uint32{0, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_ZERO_RANGE},
		allow, errno(unix.EOPNOTSUPP))
}

// mknodVerdict allows files, pipes and sockets, but no device.
func mknodVerdict(mode uint32) verdict {
	return among(mode, unix.S_IFMT, []uint32{0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK},
		refuseBits(mode, setID), errno(unix.EPERM))
}

// socketVerdict allows what a program talks to others with. Everything else is
// another part of the kernel: AF_ALG, AF_VSOCK, AF_PACKET, AF_KEY, AF_RXRPC, and
// all of netlink but the protocol by which a C library lists interfaces. The
// errors are those of a kernel that was built without it.
func socketVerdict() verdict {
	var (
		noFamily   = errno(unix.EAFNOSUPPORT)
		noProtocol = errno(unix.EPROTONOSUPPORT)
		noType     = errno(unix.EPERM) // as the kernel says to SOCK_RAW without CAP_NET_RAW
	)
	const typeMask = 0xf // above it are SOCK_CLOEXEC and SOCK_NONBLOCK
	internet := among(1, typeMask, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM},
		among(2, 0, []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}, allow, noProtocol), noType)
	local := among(1, typeMask, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET}, allow, noType)
	netlink := among(2, 0, []uint32{unix.NETLINK_ROUTE}, allow, noProtocol)
	return among(0, 0, []uint32{unix.AF_UNIX}, local,
		among(0, 0, []uint32{unix.AF_INET, unix.AF_INET6}, internet,
			among(0, 0, []uint32{unix.AF_NETLINK}, netlink, noFamily)))
}

// ioctlVerdict refuses what puts input into a terminal (TIOCSTI, TIOCLINUX),
// takes the console, loads a line discipline, or changes a file on the host for
// good: fs-verity makes it immutable, an encryption policy locks a directory.
func ioctlVerdict() verdict {
	const (
		tiocSTI      = 0x5412
		tiocLinux    = 0x541c
		tiocCons     = 0x541d
		tiocSetD     = 0x5423
		enableVerity = 0x40806685
		setPolicy    = 0x800c6613
		addKey       = 0xc0506617
	)
	return among(1, 0, []uint32{tiocSTI, tiocLinux, tiocCons, tiocSetD, enableVerity, setPolicy, addKey},
		errno(unix.EPERM), allow)
}

// personalityVerdict allows the usual one and the question for it. Others turn
// off address randomization or the protection of low addresses.
func personalityVerdict() verdict {
	return among(0, 0, []uint32{0, 0xffffffff}, allow, errno(unix.EPERM))
}

// prctlVerdict allows what is known to concern the caller alone. Of PR_SET_SECCOMP it
// allows the mode without a filter, see seccompVerdict. Not allowed: PR_SET_MM (another program's name in /proc), PR_SET_MEMORY_MERGE (pages
// shared with other sandboxes tell what these hold; MADV_MERGEABLE is the same),
// PR_SCHED_CORE (keeps a processor's other half idle).
func prctlVerdict() verdict {
	own := among(0, 0, []uint32{
		unix.PR_SET_PDEATHSIG, unix.PR_GET_PDEATHSIG, unix.PR_SET_DUMPABLE, unix.PR_GET_DUMPABLE,
		unix.PR_SET_KEEPCAPS, unix.PR_GET_KEEPCAPS, unix.PR_SET_TIMING, unix.PR_GET_TIMING,
		unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_GET_SECCOMP,
		unix.PR_CAPBSET_READ, unix.PR_CAPBSET_DROP, unix.PR_SET_TSC, unix.PR_GET_TSC,
		unix.PR_SET_SECUREBITS, unix.PR_GET_SECUREBITS, unix.PR_SET_TIMERSLACK, unix.PR_GET_TIMERSLACK,
		unix.PR_SET_CHILD_SUBREAPER, unix.PR_GET_CHILD_SUBREAPER, unix.PR_SET_NO_NEW_PRIVS, unix.PR_GET_NO_NEW_PRIVS,
		unix.PR_GET_TID_ADDRESS, unix.PR_SET_THP_DISABLE, unix.PR_GET_THP_DISABLE, unix.PR_CAP_AMBIENT,
		unix.PR_SVE_SET_VL, unix.PR_SVE_GET_VL, unix.PR_SME_SET_VL, unix.PR_SME_GET_VL,
		unix.PR_GET_SPECULATION_CTRL, unix.PR_SET_SPECULATION_CTRL, unix.PR_PAC_RESET_KEYS,
		unix.PR_PAC_SET_ENABLED_KEYS, unix.PR_PAC_GET_ENABLED_KEYS, unix.PR_SET_TAGGED_ADDR_CTRL, unix.PR_GET_TAGGED_ADDR_CTRL,
		unix.PR_SET_MDWE, unix.PR_GET_MDWE,
		unix.PR_GET_SHADOW_STACK_STATUS, unix.PR_SET_SHADOW_STACK_STATUS, unix.PR_LOCK_SHADOW_STACK_STATUS,
		unix.PR_SET_VMA, unix.PR_GET_AUXV, unix.PR_SET_PTRACER,
	}, allow, errno(unix.EINVAL))
	strict := among(1, 0, []uint32{unix.SECCOMP_MODE_STRICT}, allow, errno(unix.EINVAL))
	return among(0, 0, []uint32{unix.PR_SET_SECCOMP}, strict, own)
}
