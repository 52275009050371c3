// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// late is how a sandbox that is made already learns what it is to run. The
// child that will be the program stops before its last three steps, with all of
// its rights gone and its filter installed, and sleeps. What it runs is written to
// the memory that it still shares with us before it is woken.
//
// It sleeps until it is told or we are gone. That its parent's death kills it does not
// suffice: who is killed while the sandbox is made may be dead before that is asked for
// (prctl(2), PR_SET_PDEATHSIG), and the pid namespace shows it no parent to look for.
type late struct {
	ready *os.File // an eventfd: it sleeps, or never will
	told  *os.File // an eventfd: it may go on
	owner *os.File // a pidfd of ours, which can be read once we are gone
	ends  *[2]unix.PollFd
}

func newLate() (*late, error) {
	l := &late{ends: &[2]unix.PollFd{{Fd: toldFD, Events: unix.POLLIN}, {Fd: ownerFD, Events: unix.POLLIN}}}
	for _, f := range []**os.File{&l.ready, &l.told} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("prepare sandbox: %w", err)
		}
		*f = os.NewFile(uintptr(fd), "eventfd")
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		l.close()
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the kernel does not let caisson tell a sandbox of its own end (pidfd_open)", Cause: err,
			Hint: "caisson doctor tells what this host does not allow and how to mend it"}
	}
	l.owner = os.NewFile(uintptr(fd), "pidfd")
	return l, nil
}

func (l *late) close() {
	for _, f := range l.files() {
		if f != nil {
			f.Close()
		}
	}
}

// files are what the program has while it sleeps, from programFD on. There are none
// where nothing is late.
func (l *late) files() []*os.File {
	if l == nil {
		return nil
	}
	return []*os.File{l.ready, l.told, l.owner}
}

// Where the program finds them: see files.
const (
	toldFD  = programFD + 1
	ownerFD = programFD + 2
)

// What is said over the eventfd.
const (
	asleep   = 1
	hopeless = 1 << 32
)

// park writes down how the program goes to sleep.
func (l *late) park(s *script) {
	s.doing("wait for what to run")
	n := new(uint64)
	*n = asleep
	s.call(unix.SYS_WRITE, programFD, to(n), 8)
	s.wait(l.ends)
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
func (l *late) wake() { writeCounter(l.told, asleep) }

// letGo closes every descriptor of the builder but those that the program takes
// from it: a sandbox may wait for long, and would keep open what others close,
// the pipes of other programs and the locks of their directories among it.
func (p *plan) letGo(b *script) {
	b.doing("close descriptors")
	var keep []int
	for _, f := range append(p.first.stdio[:], p.first.late.files()...) {
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
