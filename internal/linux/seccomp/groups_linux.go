// SPDX-License-Identifier: Apache-2.0

package seccomp

import "golang.org/x/sys/unix"

// group is system calls that get the same verdict for the same reason.
type group struct {
	verdict verdict
	names   string
}

// groups is the list for untrusted code. Docker's default profile was the
// outer bound of what ordinary programs are known to get along with.
func groups() []group {
	return []group{
		// Open files.
		{allow, `read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close close_range
			lseek dup dup2 dup3 flock ftruncate truncate fsync fdatasync sync sync_file_range syncfs
			fadvise64 readahead sendfile splice tee vmsplice copy_file_range getdents getdents64 fstat fstatfs fchdir
			fchown fgetxattr fsetxattr flistxattr fremovexattr`},
		// Names of files.
		{allow, `access faccessat faccessat2 stat lstat newfstatat statx statfs readlink readlinkat getcwd chdir
			rename renameat link linkat symlink symlinkat unlink unlinkat rmdir umask
			utime utimes utimensat futimesat chown lchown fchownat
			setxattr lsetxattr getxattr lgetxattr listxattr llistxattr removexattr lremovexattr`},
		// Events. inotify counts per user, and each sandbox is a user of its own.
		{allow, `pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
			epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
			inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`},
		// Memory.
		{allow, `munmap mremap mprotect brk msync mincore mlock mlock2 mlockall munlock munlockall
			membarrier pkey_alloc pkey_free pkey_mprotect mseal map_shadow_stack`},
		// Processes and threads.
		{allow, `execve execveat exit exit_group fork vfork wait4 waitid getpid getppid gettid getpgid getpgrp getsid
			setpgid setsid kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo
			rt_tgsigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack pause pidfd_open pidfd_send_signal
			set_tid_address set_robust_list get_robust_list rseq restart_syscall arch_prctl getcpu
			futex futex_waitv futex_wake futex_wait futex_requeue`},
		// Who one is. Without capabilities only what one is already.
		{allow, `getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
			setresuid setresgid setfsuid setfsgid setgroups capget capset`},
		// Shares and limits; the kernel lets one only lower them.
		{allow, `sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getscheduler
			sched_setscheduler sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min
			sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set getrlimit setrlimit prlimit64 getrusage
			times sysinfo uname`},
		// Time.
		{allow, `time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer
			timer_create timer_delete timer_getoverrun timer_gettime timer_settime getrandom`},
		// Sockets that are open, and System V and POSIX IPC in a namespace of one's own.
		{allow, `connect bind listen accept accept4 getsockname getpeername getsockopt shutdown
			sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
			shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
			mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`},
		// A program may shut itself in further; see seccompVerdict.
		{allow, `landlock_create_ruleset landlock_add_rule landlock_restrict_self`},

		// By their arguments.
		{cloneVerdict(), `clone`},
		{socketVerdict(), `socket`},
		{setsockoptVerdict(), `setsockopt`},
		{fcntlVerdict(), `fcntl`},
		{fallocateVerdict(), `fallocate`},
		{mmapVerdict(), `mmap`},
		{refuseBits(1, unix.MFD_HUGETLB), `memfd_create`},
		{refuseBits(2, shmHugeTLB), `shmget`},
		{among(0, 0, []uint32{unix.AF_UNIX}, allow, errno(unix.EAFNOSUPPORT)), `socketpair`},
		{ioctlVerdict(), `ioctl`},
		{prctlVerdict(), `prctl`},
		{seccompVerdict(), `seccomp`},
		{personalityVerdict(), `personality`},
		{among(2, 0, []uint32{unix.MADV_MERGEABLE}, errno(unix.EINVAL), allow), `madvise`}, // see prctlVerdict
		{refuseBits(1, setID), `chmod fchmod creat mkdir`},
		{refuseBits(2, setID), `fchmodat fchmodat2 mkdirat`},
		{openVerdict(1), `open`},
		{openVerdict(2), `openat`},
		{refuseBits(4, unix.RENAME_WHITEOUT), `renameat2`}, // leaves a device (0, 0) behind
		{mknodVerdict(1), `mknod`},
		{mknodVerdict(2), `mknodat`},

		// Other namespaces and mounts.
		{errno(unix.EPERM), `unshare setns mount umount2 pivot_root chroot move_mount open_tree open_tree_attr
			mount_setattr fsopen fsconfig fsmount fspick`},
		// Other processes.
		{errno(unix.EPERM), `ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd`},
		// Large parts of the kernel that ordinary programs do without.
		{errno(unix.EPERM), `bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
			add_key request_key keyctl fanotify_init fanotify_mark memfd_secret remap_file_pages
			mbind get_mempolicy set_mempolicy set_mempolicy_home_node migrate_pages move_pages`},
		// Files by number instead of by name: no directory stands above them.
		{errno(unix.EPERM), `name_to_handle_at open_by_handle_at`},
		// The machine.
		{errno(unix.EPERM), `kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff
			acct quotactl quotactl_fd settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname
			syslog vhangup iopl ioperm modify_ldt`},

		// Flags, modes and namespaces are in memory, where no filter sees them
		// and where they can change. C libraries go back to the older call.
		{errno(unix.ENOSYS), `clone3 openat2`},
		// There is one pool of requests for all users of a machine
		// (/proc/sys/fs/aio-max-nr): one sandbox could empty it.
		{errno(unix.ENOSYS), `io_setup io_submit io_getevents io_pgetevents io_cancel io_destroy`},
		// New, and no program needs them yet.
		{errno(unix.ENOSYS), `cachestat statmount listmount listns lsm_get_self_attr lsm_set_self_attr lsm_list_modules
			setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr rseq_slice_yield uprobe uretprobe`},
		// Gone from the kernel, or for 32-bit programs.
		{errno(unix.ENOSYS), `_sysctl afs_syscall create_module epoll_ctl_old epoll_wait_old get_kernel_syms getpmsg
			get_thread_area lookup_dcookie nfsservctl putpmsg query_module security set_thread_area sysfs tuxcall
			uselib ustat vserver`},
	}
}
