// SPDX-License-Identifier: Apache-2.0

package threads

import (
	"strconv"
	"syscall"
)

// SlowMonitor lets the timers of the thread of Go's runtime that looks after the others
// be late by so many nanoseconds. That is the first one which a process makes
// (runtime.main). A thread that it begins, for one that is long in a system call, inherits
// that. It needs CAP_SYS_NICE (proc(5), timerslack_ns), and fails where the thread with the
// number that follows the process's is none of this process.
func SlowMonitor(slack int) error {
	tid := strconv.Itoa(syscall.Getpid() + 1)
	var st syscall.Stat_t
	if err := syscall.Lstat("/proc/self/task/"+tid, &st); err != nil {
		return err
	}
	fd, err := syscall.Open("/proc/"+tid+"/timerslack_ns", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	_, err = syscall.Write(fd, strconv.AppendInt(nil, int64(slack), 10))
	return err
}
