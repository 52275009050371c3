// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// late is how a sandbox that is made already learns what it is to run. The
// child that will be the program stops before its last three steps, with all of
// its rights gone and its filter installed, and sleeps on a word of the memory
// that it still shares with us. What it runs is written there before it is woken.
type late struct {
	word  *int32   // 0 until it is told
	ready *os.File // an eventfd: it sleeps, or never will
}

func newLate() (*late, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("prepare sandbox: %w", err)
	}
	return &late{word: new(int32), ready: os.NewFile(uintptr(fd), "eventfd")}, nil
}

// file is nil where nothing is late.
func (l *late) file() *os.File {
	if l == nil {
		return nil
	}
	return l.ready
}

// What is said over the eventfd.
const (
	asleep   = 1
	hopeless = 1 << 32
)

// park writes down how the program goes to sleep; the eventfd is its descriptor
// programFD.
func (l *late) park(s *script) {
	s.doing("wait for what to run")
	n := new(uint64)
	*n = asleep
	s.call(unix.SYS_WRITE, programFD, to(n), 8)
	s.wait(l.word)
}

// wait returns when the program sleeps, or when give up was called.
func (l *late) wait() (ready bool) {
	var b [8]byte
	_, err := l.ready.Read(b[:])
	return err == nil && binary.NativeEndian.Uint64(b[:]) < hopeless
}

// giveUp says that the program will not come to sleep.
func (l *late) giveUp() {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], hopeless)
	_, _ = l.ready.Write(b[:])
}

// wake has the program go on.
func (l *late) wake() {
	atomic.StoreInt32(l.word, 1)
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(l.word)), futexWake|futexPrivate, 1, 0, 0, 0)
}

// letGo closes every descriptor of the builder but those that the program takes
// from it: a sandbox may wait for long, and would keep open what others close,
// the pipes of other programs and the locks of their directories among it.
func (p *plan) letGo(b *script) {
	b.doing("close descriptors")
	var keep []int
	for _, f := range append(p.first.stdio[:], p.first.late.ready) {
		keep = append(keep, int(f.Fd()))
	}
	if p.rules != nil {
		keep = append(keep, int(p.rules.FD()))
	}
	slices.Sort(keep)
	from := 0
	for _, fd := range keep {
		if fd > from {
			b.call(unix.SYS_CLOSE_RANGE, from, fd-1, 0)
		}
		from = fd + 1
	}
	b.call(unix.SYS_CLOSE_RANGE, from, uintptr(^uint32(0)), 0)
}
