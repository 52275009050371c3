// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// beat comes again and again, as a time.Ticker does, but out of a descriptor of the
// kernel's; it begins with every. One waits, sets and closes; another one may stop.
// For a timer of its own Go's monitor wakes at the very moment, and then
// looks every 20 µs whether the thread has woken that waits for it, which is let
// sleep on for as long as timers may be late here: up to fifty looks for nothing,
// most of what a look at a sandbox that sleeps cost.
type beat struct {
	file *os.File
	fd   int // file's, which file.Fd would make blocking
}

func newBeat() (*beat, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	return &beat{os.NewFile(uintptr(fd), "beat"), fd}, nil
}

// every has it come so often from now on. It is for who waits.
func (b *beat) every(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	// With a timer and a time above 0 there is nothing that it could refuse.
	_ = unix.TimerfdSettime(b.fd, 0, &unix.ItimerSpec{Interval: t, Value: t}, nil)
}

// wait returns when it has come; false after stop.
func (b *beat) wait() bool {
	var missed [8]byte
	_, err := b.file.Read(missed[:])
	return err == nil
}

// stop ends a wait, and those to come.
func (b *beat) stop() { _ = b.file.SetReadDeadline(time.Unix(1, 0)) }

func (b *beat) close() { b.file.Close() }
