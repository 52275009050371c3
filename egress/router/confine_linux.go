// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/landlock"
	"github.com/caisson-run/caisson/internal/linux/seccomp"
	"github.com/caisson-run/caisson/internal/linux/threads"
)

const (
	// softMemory is where the collector begins to work hard, in bytes.
	softMemory = 96 << 20
	// maxMemory is what the process may hold, in bytes: 512 connections with
	// full buffers and room. Beyond it the process ends, and with it the
	// network.
	maxMemory = 1 << 30
	// maxFiles are two for each connection and some.
	maxFiles = 2048
)

// readable is where the host's resolver keeps what it reads, links included.
var readable = []string{"/etc", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"}

// confine takes away what a router does not need. uid, when not 0, is who this
// process becomes.
func confine(uid int, closed bool) error {
	for _, l := range []struct {
		which   int
		maximum uint64
	}{
		{unix.RLIMIT_CORE, 0}, // packets of others' secrets
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_DATA, maxMemory},
		{unix.RLIMIT_NOFILE, maxFiles},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
	} {
		if err := lower(l.which, l.maximum); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	if err := threads.ResetAttributes(); err != nil {
		return err
	}
	if err := become(uid); err != nil {
		return fmt.Errorf("becoming uid %d: %w", uid, err)
	}
	// Every thread, not only this one.
	if _, _, errno := threads.Call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return fmt.Errorf("no_new_privs: %w", errno)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	if err := hideFiles(); err != nil {
		return err
	}
	return filter(closed)
}

// lower never raises a limit.
func lower(which int, maximum uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(which, &now); err != nil {
		return err
	}
	maximum = min(maximum, now.Max)
	// The runtime raises and restores the number of files by itself, which
	// syscall.Setrlimit tells it.
	if which == unix.RLIMIT_NOFILE {
		return syscall.Setrlimit(which, &syscall.Rlimit{Cur: maximum, Max: maximum})
	}
	return unix.Setrlimit(which, &unix.Rlimit{Cur: maximum, Max: maximum})
}

// become gives up root with everything that belongs to it, where this process was not
// started without.
func become(uid int) error {
	if uid == 0 {
		if os.Geteuid() == 0 {
			return errors.New("a router may not run as root")
		}
		return nil
	}
	if is, err := already(uid); is || err != nil {
		return err
	}
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(uid, uid, uid); err != nil {
		return err
	}
	return syscall.Setresuid(uid, uid, uid) // takes the capabilities along
}

// already reports whether this process is uid alone, as user and as group. A process
// that has changed all three of its users from root has no capability left.
func already(uid int) (bool, error) {
	ru, eu, su := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	groups, err := unix.Getgroups()
	for _, id := range []int{ru, eu, su, rg, eg, sg} {
		if id != uid {
			return false, err
		}
	}
	return len(groups) == 0, err
}

// hideFiles leaves reading of readable. Where the kernel has no Landlock the
// uid and the system call filter stand alone.
func hideFiles() error {
	o := landlock.Options{TCP: true}
	for _, path := range readable {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // not on this host
		}
		defer unix.Close(fd)
		o.Paths = append(o.Paths, landlock.Path{FD: fd, Access: landlock.Read})
	}
	r, err := landlock.New(o)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if _, _, errno := threads.Call(unix.SYS_LANDLOCK_RESTRICT_SELF, r.FD(), r.Flags(), 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// filter puts the system call filter over all threads.
func filter(closed bool) error {
	program, err := seccomp.Router(runtime.GOARCH, os.Getpid(), closed)
	if err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
