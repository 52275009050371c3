// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"os/signal"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the kernel counts by user, and not by process or control group.
func quotas() map[string]func() error {
	return map[string]func() error{
		"inotify instances": func() error { _, err := unix.InotifyInit1(unix.IN_CLOEXEC); return err },
		"terminals": func() error {
			_, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
			return err
		},
		"timers": func() error {
			event := struct {
				value         uint64
				signo, notify int32
				_             [48]byte
			}{notify: 1} // SIGEV_NONE; a signal is kept ready all the same
			var id int32
			_, _, errno := unix.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id)))
			if errno != 0 {
				return errno
			}
			return nil
		},
		"wide pipes": func() error {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				return err
			}
			_, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, 1<<20)
			return err
		},
		"message queues": messageQueue,
	}
}

// messageQueue makes one with room for as much as is usual, and forgets its name.
func messageQueue() error {
	name := [...]byte{'q', 0}
	attr := [8]int64{1: 10, 2: 8192}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name)), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600, uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Quotas tries for one of each kind, n times at most, and says how many it got
// of it. It keeps them.
func Quotas(n int64, say func(Try)) {
	for what, get := range quotas() {
		t := Try{Case: "quota", What: what}
		for t.Count < n {
			if err := get(); err != nil {
				t.Error = err.Error()
				break
			}
			t.Count++
		}
		t.Got = t.Count > 0
		say(t)
	}
}

// quota takes all that there is of what is counted by user, and keeps it.
func quota(n int64) int {
	signal.Ignore()
	// Descriptors are another limit, which this process may use up.
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	}
	Quotas(n, say)
	end("quotas", 0, nil)
	return 0
}

// busy spins in n threads until it is told to end.
func busy(n int64) int {
	runtime.GOMAXPROCS(int(n) + 1)
	for range n {
		go func() {
			for x := uint64(1); x != 0; x |= x << 1 {
			}
		}()
	}
	end("busy", n, nil)
	return 0
}
