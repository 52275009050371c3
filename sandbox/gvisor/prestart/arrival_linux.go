// SPDX-License-Identifier: Apache-2.0

// Package prestart makes gVisor's gofer and sentry what they shall be before gVisor's own
// code begins in them. gVisor does the same later and slower: in many threads where one
// could do, or by executing the whole program once more. It stays by the rule of speed in
// CONTRIBUTING.md: without the programs of root a whole run takes 1.12 of the time.
//
// As root, both are started through a program of a few instructions ([Bounds]), and a third
// one takes the place of gVisor's umounter ([Umounter]). They are written in assembly
// (starter_linux_amd64.s), copied out of this binary's own text into a file without a name,
// and executed from there. Where there is no assembly, or where such a file cannot be
// executed, gVisor does the same work itself.
//
// Without privilege, both begin in a user namespace as the overflow user. They wait until
// their namespace is ready, become their user in one thread, and must then execute
// themselves again, because all their threads should. gVisor does so when it has
// initialised its packages, read the spec and made the kernel's empty root; the gofer does
// most of it once more, and needs a third process that unmounts its /proc. Here the first
// three steps are done in package init. Both then find them done and go on to the end in
// one process, as they do for root.
//
// Packages are initialised in the order of their import paths as far as their own imports
// allow (https://go.dev/ref/spec#Program_initialization). This one imports next to
// nothing, so it is done before gVisor's 300 packages begin. It is the only package of
// the engine whose init does work. Capabilities are narrowed on the way. The kernel is
// executed with the two that making its root takes: gVisor then gives up all that it does
// not want, and what it wants is not there, so that it is left with none.
package prestart

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) > 0 && (strings.HasPrefix(os.Args[0], "runsc-") || os.Args[0] == "caisson-shim") {
		// A profile of their memory is never read. Taking one is a walk of the
		// stack for each half MiB.
		runtime.MemProfileRate = 0
	}
	if s, ok := wanted(os.Args); ok {
		os.Exit(s.arrive())
	}
}

// stranger is a half that has not arrived.
type stranger struct {
	kernel   bool // the file server otherwise
	ready    int  // the descriptor that ends when the namespace is ready
	uid, gid int
	argv     []string // of itself, arrived
}

const readyFlag = "--sync-userns-fd="

// wanted recognises the command lines that gVisor gives its gofer and sentry:
// "runsc-gofer FLAGS gofer FLAGS --sync-userns-fd=9 --uid=1000 --gid=1000 ID",
// and "runsc-sandbox FLAGS boot FLAGS --apply-caps=true --setup-root …" with the
// same. A user who is root there has no --uid; that kernel is left to gVisor,
// which lets it keep capabilities.
func wanted(argv []string) (stranger, bool) {
	if len(argv) == 0 || (argv[0] != "runsc-gofer" && argv[0] != "runsc-sandbox") {
		return stranger{}, false
	}
	s := stranger{kernel: argv[0] == "runsc-sandbox", ready: -1, argv: make([]string, 0, len(argv))}
	caps, root := false, false
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
		caps, root = caps || arg == "--apply-caps=true", root || arg == "--setup-root"
		s.argv = append(s.argv, arg)
	}
	if s.kernel && (!caps || !root || s.uid == 0) {
		return stranger{}, false
	}
	return s, s.ready >= 0 && s.uid >= 0 && s.gid >= 0
}

// arrive executes the half anew, or says with what code this process
// ends.
func (s *stranger) arrive() int {
	if err := errors.Join(s.wait(), s.become(), s.narrow()); err != nil {
		return 125
	}
	if err := syscall.Exec("/proc/self/exe", s.argv, os.Environ()); err != nil {
		return 125
	}
	return 0
}

// wait waits until the other end is closed. A writer of anything means another
// program.
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

// making is what the kernel makes its empty root with: mount and pivot_root.
const making = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_CHROOT

// narrow takes everything that is not kept out of this thread's bounding set,
// and CAP_SETPCAP out of what the half is executed with, which tells gVisor
// that nothing is left to be taken out of 40 sets in each of its threads.
func (s *stranger) narrow() error {
	keep := uintptr(Kept)
	if s.kernel {
		keep = 0 // it executes nothing
	}
	for c := range uintptr(64) {
		if keep&(1<<c) != 0 {
			continue
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_CAPBSET_DROP, c, 0); errno == syscall.EINVAL {
			break // the kernel has no more
		} else if errno != 0 {
			return errno
		}
	}
	if s.kernel {
		return only(making)
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, unix.CAP_SETPCAP, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// only gives up all but some capabilities. What is executed has the ambient
// ones, and those are never more than what is permitted and inheritable.
func only(caps uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		half := uint32(caps >> (32 * i))
		data[i] = unix.CapUserData{Effective: half, Permitted: half, Inheritable: half}
	}
	return unix.Capset(&header, &data[0])
}
