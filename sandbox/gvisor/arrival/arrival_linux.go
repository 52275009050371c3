// SPDX-License-Identifier: Apache-2.0

// Package arrival has gVisor's file server become who it will be in a user
// namespace, where root does not run caisson, before gVisor begins.
//
// gVisor's file server is born there as nobody. It waits until its namespace is
// ready, becomes its user, in one thread, and must then execute itself again,
// because all its threads should. When it has done all that with its packages
// initialised and the spec read, it does both once more, and needs a third
// process that unmounts its /proc. Here the first three steps are done in
// package init, and the file server then finds them done and goes on to the end
// in one process, as it does for root.
//
// As in package umounter, which says why that is early enough, next to nothing
// is imported. The bounding set of capabilities is narrowed on the way, see
// [github.com/caisson-run/caisson/sandbox/gvisor/starter.Bounds].
package arrival

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	if s, ok := wanted(os.Args); ok {
		os.Exit(s.arrive())
	}
}

// stranger is a file server that has not arrived.
type stranger struct {
	ready    int // the descriptor that ends when the namespace is ready
	uid, gid int
	argv     []string // of itself, arrived
}

const readyFlag = "--sync-userns-fd="

// wanted recognises the command line that gVisor gives its file server:
// "runsc-gofer FLAGS gofer FLAGS --sync-userns-fd=9 --uid=1000 --gid=1000 ID".
// A user who is root there has no --uid.
func wanted(argv []string) (stranger, bool) {
	if len(argv) == 0 || argv[0] != "runsc-gofer" {
		return stranger{}, false
	}
	s := stranger{ready: -1, argv: make([]string, 0, len(argv))}
	for _, arg := range argv {
		var err error
		if n, ok := strings.CutPrefix(arg, readyFlag); ok {
			if s.ready, err = strconv.Atoi(n); err == nil {
				arg = readyFlag + "-1"
			}
		} else if n, ok := strings.CutPrefix(arg, "--uid="); ok {
			s.uid, err = strconv.Atoi(n)
		} else if n, ok := strings.CutPrefix(arg, "--gid="); ok {
			s.gid, err = strconv.Atoi(n)
		}
		if err != nil {
			return stranger{}, false
		}
		s.argv = append(s.argv, arg)
	}
	return s, s.ready >= 0 && s.uid >= 0 && s.gid >= 0
}

// arrive executes the file server anew, or says with what code this process
// ends.
func (s *stranger) arrive() int {
	if err := errors.Join(s.wait(), s.become(), narrow()); err != nil {
		return 125
	}
	if err := syscall.Exec("/proc/self/exe", s.argv, os.Environ()); err != nil {
		return 125
	}
	return 0
}

// wait waits until the other end is closed. Whoever writes something means
// another program.
func (s *stranger) wait() error {
	var b [1]byte
	for {
		n, err := syscall.Read(s.ready, b[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != 0 {
			return errors.Join(err, syscall.EPROTO)
		}
		return syscall.Close(s.ready)
	}
}

// become changes this thread alone, which is the one that executes.
func (s *stranger) become() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETUID, uintptr(s.uid), 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGID, uintptr(s.gid), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// Kept is what gVisor's file server keeps in its bounding set, a bit for each.
// A newer gVisor that wants another one gets it all the same: the bounding set
// is about what is executed later, and it executes nothing.
const Kept = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_SYS_CHROOT

// narrow takes all else out of this thread's bounding set, and CAP_SETPCAP out
// of what the file server is executed with, which tells gVisor that nothing is
// left to be taken out of 40 sets in each of its threads.
func narrow() error {
	for c := range uintptr(64) {
		if Kept&(1<<c) != 0 {
			continue
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_CAPBSET_DROP, c, 0); errno == syscall.EINVAL {
			break // the kernel has no more
		} else if errno != 0 {
			return errno
		}
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, unix.CAP_SETPCAP, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
