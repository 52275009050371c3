// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// The two ends of a machine's wire, by addresses that its owner made up
// (locally administered: IEEE 802c).
var (
	guestMAC   = net.HardwareAddr{0x02, 0xca, 0x15, 0x50, 0x00, 0x02}
	gatewayMAC = net.HardwareAddr{0x02, 0xca, 0x15, 0x50, 0x00, 0x01}
)

const (
	etherHeader = 14
	etherIPv4   = 0x0800
	// maxFrame is how long a frame of QEMU's may be, in bytes.
	maxFrame = 68 << 10
)

// nic carries packets between a machine's network device and its router: frames on the
// monitor's side, IPv4 packets as messages on the router's (sandbox.WirePackets). What is
// no IPv4 goes nowhere.
type nic struct {
	router  *os.File // the router's; a descriptor of our own
	machine frames
	done    sync.WaitGroup
}

// frames is a monitor's side of a nic. One goroutine reads and one writes.
type frames interface {
	// read reads a frame into b, of which the first maxFrame bytes are free.
	read(b []byte) (int, error)
	// write writes the frame that is b behind the first frameHead bytes, which are its.
	write(b []byte) error
	Close() error
}

// frameHead is what frames may write before a frame.
const frameHead = 4

// stream has each frame behind its length (QEMU's "stream" netdev).
type stream struct {
	net.Conn
	from *bufio.Reader
}

func newStream(c net.Conn) *stream { return &stream{c, bufio.NewReaderSize(c, maxFrame)} }

func (s *stream) read(b []byte) (int, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(s.from, head[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return 0, errors.New("a frame is too long")
	}
	return io.ReadFull(s.from, b[:n])
}

func (s *stream) write(b []byte) error {
	binary.BigEndian.PutUint32(b, uint32(len(b)-frameHead))
	_, err := s.Write(b)
	return err
}

// messages has each frame as a message (tun.Frames).
type messages struct{ *os.File }

func (m messages) read(b []byte) (int, error) {
	for {
		n, err := m.Read(b)
		if !errors.Is(err, unix.ENETDOWN) { // the monitor has not opened it yet
			return n, err
		}
	}
}

// write loses what the machine does not read, as any network does.
func (m messages) write(b []byte) error {
	_, err := m.Write(b[frameHead:])
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENETDOWN) {
		return nil
	}
	return err
}

// newNIC begins to carry.
func newNIC(n *sandbox.Network, machine frames) (*nic, error) {
	fd, err := unix.FcntlInt(n.NIC.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that close ends a read
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &nic{router: os.NewFile(uintptr(fd), "nic"), machine: machine}
	w.done.Go(w.fromMachine)
	w.done.Go(w.toMachine)
	return w, nil
}

// close ends the wire. It waits until nothing is carried any more.
func (w *nic) close() {
	if w == nil {
		return
	}
	w.machine.Close()
	w.router.Close()
	w.done.Wait()
}

// fromMachine carries what the guest sends. Its frames are hostile: nothing but their
// length and kind is looked at, the router judges packets.
func (w *nic) fromMachine() {
	frame := make([]byte, maxFrame)
	for {
		n, err := w.machine.read(frame)
		if err != nil {
			return
		}
		if n <= etherHeader || binary.BigEndian.Uint16(frame[12:]) != etherIPv4 {
			continue
		}
		if _, err := w.router.Write(frame[etherHeader:n]); err != nil && !errors.Is(err, unix.EMSGSIZE) {
			return
		}
	}
}

// toMachine carries what the router sends.
func (w *nic) toMachine() {
	const before = frameHead + etherHeader
	b := make([]byte, before+maxFrame)
	copy(b[frameHead:], guestMAC)
	copy(b[frameHead+6:], gatewayMAC)
	binary.BigEndian.PutUint16(b[frameHead+12:], etherIPv4)
	for {
		n, err := w.router.Read(b[before:])
		if err != nil || n == 0 {
			return
		}
		sum(b[before:][:n])
		if err := w.machine.write(b[:before+n]); err != nil {
			return
		}
	}
}

// sum writes the checksum of a TCP or UDP packet, which the router leaves to a kernel
// that reads none; a guest's reads it (RFC 9293, 3.1).
func sum(p []byte) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return
	}
	head := int(p[0]&15) * 4
	at := map[byte]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6}[p[9]]
	if at == 0 || head < 20 || len(p) < head+at+2 || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
		return
	}
	body := p[head:]
	body[at], body[at+1] = 0, 0
	total := uint32(p[9]) + uint32(len(body))
	total += words(p[12:20]) + words(body)
	for total>>16 != 0 {
		total = total&0xffff + total>>16
	}
	n := ^uint16(total)
	if n == 0 && p[9] == unix.IPPROTO_UDP {
		n = 0xffff
	}
	binary.BigEndian.PutUint16(body[at:], n)
}

// words adds up 16-bit numbers, folded.
func words(b []byte) (total uint32) {
	for ; len(b) >= 2; b = b[2:] {
		total += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	for total>>16 != 0 {
		total = total&0xffff + total>>16
	}
	return total
}
