// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A router is a process, and most programs that may use a network do not. So it is
// started by the first packet, or when a program that may send one has run for a while
// (Foresee). Packets wait on the wire meanwhile, as all do that come before a router
// reads them. Nothing goes through before there is one, and nothing ever when there can
// be none.
//
// The owner only looks whether something came. Of a wire that is a socket it looks at
// the first byte of a packet: a kernel inside may say words of IPv6 by itself, which a
// router would drop. Of a TUN device it has a copy of the descriptor until
// then, and reads nothing.

// watch waits for the first packet on the router's end of a wire. It may be ended
// from any goroutine.
type watch struct {
	others int // packets that were taken off the wire; the waiting goroutine's own

	mu    sync.Mutex
	eyes  []*os.File
	ended bool
}

// end has wait return.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, f := range w.eyes {
		_ = f.SetReadDeadline(time.Unix(1, 0))
	}
}

// close gives the copies back.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, f := range w.eyes {
		f.Close()
	}
	w.eyes = nil
}

// wait waits until a packet is on the wire, or for the end, and reports which. A wire
// that cannot be watched is one with a packet: its router says what is wrong.
func (w *watch) wait(far *os.File, device bool) (came bool) {
	defer w.close()
	fd, err := unix.FcntlInt(far.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return true
	}
	seen := w.packet
	if device {
		seen = message
	}
	if !w.look(fd, seen) || !device {
		return !w.over() || seen(fd)
	}
	if fd, err = comes(fd); err == nil {
		w.look(fd, readable)
		return !w.over() || readable(fd)
	}
	return true
}

func (w *watch) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// look takes fd, and waits until seen says yes of it; false is the end, or a fault.
func (w *watch) look(fd int, seen func(fd int) bool) bool {
	_ = unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "wire "+strconv.Itoa(fd))
	w.mu.Lock()
	w.eyes = append(w.eyes, f)
	if w.ended {
		_ = f.SetReadDeadline(time.Unix(1, 0))
	}
	w.mu.Unlock()
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Read(func(fd uintptr) bool { return seen(int(fd)) }) == nil
}

// maxOthers bounds the packets that are taken off a wire without a router: a kernel
// says a few by itself. More are code's doing, and not for the owner to read.
const maxOthers = 64

// packet reports whether a packet of IPv4 is next, or the end or a fault. What is of
// another protocol is taken off the wire.
func (w *watch) packet(fd int) bool {
	for b := make([]byte, 1); ; {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil || n == 0 || b[0]>>4 == 4 || w.others == maxOthers:
			return true
		}
		w.others++
		_, _, _ = unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	}
}

// message reports whether one is next, or the end or a fault.
func message(fd int) bool {
	for b := make([]byte, 1); ; {
		_, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return !errors.Is(err, unix.EAGAIN)
	}
}

// readable reports whether something can be read, or a fault.
func readable(fd int) bool {
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err != nil || n > 0
	}
}

// errNoDevice says that what came over the socket is not one descriptor.
var errNoDevice = errors.New("no device came")

// comes gives a copy of the descriptor that is next on a socket, which stays there
// for the router.
func comes(fd int) (int, error) {
	text, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fd, text, control, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	var fds []int
	for i := range messages {
		if more, rerr := unix.ParseUnixRights(&messages[i]); rerr == nil {
			fds = append(fds, more...)
		}
	}
	if err == nil && len(fds) == 1 {
		return fds[0], nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return -1, errNoDevice
}
