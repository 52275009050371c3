// SPDX-License-Identifier: Apache-2.0

package seccomp

import "golang.org/x/sys/unix"

// The verdicts here keep code from what the whole machine has one pool of, and from
// files of the host that it may only read. docs/security/kernel-pools.md lists the pools.

// fcntlVerdict allows commands by name; a kernel that lacks one answers EINVAL. Not
// allowed are leases, delegations (F_SETLEASE, F_SETDELEG) and write hints
// (F_SET_RW_HINT): they work through a read-only mount, and a program of the host that
// opens a leased file waits (fs.lease-break-time, 45 s). F_NOTIFY is what was there
// before inotify, without its limits.
func fcntlVerdict() verdict {
	const getOwnerUIDs, dupQuery, createdQuery = 17, 1027, 1028 // F_GETOWNER_UIDS, F_DUPFD_QUERY, F_CREATED_QUERY
	return among(1, 0, []uint32{
		unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, dupQuery, createdQuery,
		unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL,
		unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW,
		unix.F_GETOWN, unix.F_SETOWN, unix.F_GETOWN_EX, unix.F_SETOWN_EX, getOwnerUIDs, unix.F_GETSIG, unix.F_SETSIG,
		unix.F_GETPIPE_SZ, unix.F_SETPIPE_SZ, unix.F_GET_SEALS, unix.F_ADD_SEALS,
	}, allow, errno(unix.EINVAL))
}

// seccompVerdict lets code ask, and shut itself in without a filter. The kernel compiles
// filters into memory that no control group counts, out of one pool
// (net.core.bpf_jit_limit): 127 processes of one sandbox had 83 MiB of it. A filter with
// a listener would also answer system calls on behalf of others. EINVAL is the answer of
// a kernel without filters, with which programs go on.
func seccompVerdict() verdict {
	return among(0, 0, []uint32{unix.SECCOMP_SET_MODE_FILTER}, errno(unix.EINVAL), allow)
}

// setsockoptVerdict allows options of SOL_SOCKET by name. Not allowed are filters, for
// the reason of seccompVerdict: SO_ATTACH_FILTER, SO_ATTACH_BPF,
// SO_ATTACH_REUSEPORT_CBPF and _EBPF, and with them SO_DETACH_FILTER,
// SO_DETACH_REUSEPORT_BPF and SO_LOCK_FILTER. Of IPv6 it refuses flow labels, of which
// the machine has 4,096. Of TCP it refuses the protocols of other modules (TCP_ULP), and
// of UDP encapsulation, which turns on a path for all sockets of the machine; the kernel
// takes that option at the level of UDP-Lite as well. A kernel that lacks an option answers ENOPROTOOPT.
func setsockoptVerdict() verdict {
	const (
		timestampOld, timestampNSOld, timestampingOld    = 29, 35, 37
		receiveTimeoutOld, sendTimeoutOld                = 20, 21
		timestampNew, timestampNSNew, timestampingNew    = 63, 64, 65
		receiveTimeoutNew, sendTimeoutNew                = 66, 67
		preferBusyPoll, busyPollBudget                   = 69, 70
		bufferLock, reserveMemory, txRehash, receiveMark = 72, 73, 74, 75
		passPidFD, passRights                            = 76, 83
		flowLabelManager                                 = 32 // IPV6_FLOWLABEL_MGR
	)
	only := func(refused uint32) verdict { return among(2, 0, []uint32{refused}, errno(unix.ENOPROTOOPT), allow) }
	without := errno(unix.ENOPROTOOPT)
	socket := among(2, 0, []uint32{
		unix.SO_DEBUG, unix.SO_REUSEADDR, unix.SO_TYPE, unix.SO_ERROR, unix.SO_DONTROUTE, unix.SO_BROADCAST, unix.SO_SNDBUF, unix.SO_RCVBUF,
		unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE, unix.SO_KEEPALIVE, unix.SO_OOBINLINE, unix.SO_NO_CHECK, unix.SO_PRIORITY, unix.SO_LINGER,
		unix.SO_BSDCOMPAT, unix.SO_REUSEPORT, unix.SO_PASSCRED, unix.SO_PEERCRED, unix.SO_RCVLOWAT, unix.SO_SNDLOWAT,
		receiveTimeoutOld, sendTimeoutOld, receiveTimeoutNew, sendTimeoutNew,
		timestampOld, timestampNSOld, timestampingOld, timestampNew, timestampNSNew, timestampingNew,
		unix.SO_BINDTODEVICE, unix.SO_ACCEPTCONN, unix.SO_PASSSEC, unix.SO_MARK, unix.SO_RXQ_OVFL, unix.SO_WIFI_STATUS, unix.SO_PEEK_OFF,
		unix.SO_NOFCS, unix.SO_SELECT_ERR_QUEUE, unix.SO_BUSY_POLL, unix.SO_MAX_PACING_RATE, unix.SO_INCOMING_CPU, unix.SO_CNX_ADVICE,
		unix.SO_ZEROCOPY, unix.SO_TXTIME, preferBusyPoll, busyPollBudget, bufferLock, reserveMemory, txRehash, receiveMark, passPidFD, passRights,
	}, allow, without)
	return among(1, 0, []uint32{unix.SOL_SOCKET}, socket,
		among(1, 0, []uint32{unix.IPPROTO_IPV6}, only(flowLabelManager),
			among(1, 0, []uint32{unix.IPPROTO_TCP}, only(unix.TCP_ULP),
				among(1, 0, []uint32{unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE}, only(unix.UDP_ENCAP), allow))))
}

// Huge pages are few and set aside for who needs them; no control group of ours counts
// them. The answers are the kernel's where there are none, or for who may not have them.

func mmapVerdict() verdict {
	return verdict{test: &test{arg: 3, mask: unix.MAP_HUGETLB, then: errno(unix.ENOMEM), not: allow}}
}

const shmHugeTLB = 0o4000 // SHM_HUGETLB
