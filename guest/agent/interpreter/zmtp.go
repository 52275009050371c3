// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/caisson-run/caisson/interpreter"
)

// The part of ZMTP 3.0 that a client of a Jupyter kernel needs: no security, one peer, no
// reconnecting. The libraries that there are allocate what a peer announces, and the peer
// is hostile here.

const (
	frameMore    = 1
	frameLong    = 2
	frameCommand = 4

	greetingSize = 64
	maxFrames    = 64
	maxCommand   = 4 << 10
	shakeTimeout = 5 * time.Second
)

// peer is a connection to one socket of a kernel.
type peer struct {
	conn net.Conn
	in   *bufio.Reader
}

// greet begins to speak on a connection; kind is our socket's, such as DEALER. It closes
// the connection when it fails.
func greet(conn net.Conn, kind string) (*peer, error) {
	p := &peer{conn, bufio.NewReaderSize(conn, 64<<10)}
	conn.SetDeadline(time.Now().Add(shakeTimeout))
	if err := p.shake(kind); err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return p, nil
}

func (p *peer) shake(kind string) error {
	var hello [greetingSize]byte
	hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
	copy(hello[12:32], "NULL")
	ready := append([]byte("\x05READY"), property("Socket-Type", kind)...)
	ready = append(ready, property("Identity", "")...)
	out := append(hello[:], frameCommand, byte(len(ready)))
	if _, err := p.conn.Write(append(out, ready...)); err != nil {
		return err
	}
	var theirs [greetingSize]byte
	if _, err := io.ReadFull(p.in, theirs[:]); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[10] < 3 || !strings.HasPrefix(string(theirs[12:32]), "NULL\x00") {
		return fmt.Errorf("%w: it speaks no ZMTP 3", errProtocol)
	}
	flags, body, err := p.frame(maxCommand)
	if err == nil && (flags&frameCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY"))) {
		err = fmt.Errorf("%w: it is not ready", errProtocol)
	}
	return err
}

func property(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// send sends a message.
func (p *peer) send(frames ...[]byte) error {
	var b []byte
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = frameMore
		}
		if len(f) > 255 {
			b = binary.BigEndian.AppendUint64(append(b, flags|frameLong), uint64(len(f)))
		} else {
			b = append(b, flags, byte(len(f)))
		}
		b = append(b, f...)
	}
	_, err := p.conn.Write(b)
	return err
}

// receive reads a message; what it allocates has arrived.
func (p *peer) receive() ([][]byte, error) {
	var frames [][]byte
	left := interpreter.MaxLine
	for {
		flags, body, err := p.frame(left)
		switch {
		case err != nil:
			return nil, err
		case flags&frameCommand != 0:
			continue
		}
		left -= len(body)
		if frames = append(frames, body); len(frames) > maxFrames {
			return nil, fmt.Errorf("%w: a message has too many frames", errProtocol)
		}
		if flags&frameMore == 0 {
			return frames, nil
		}
	}
}

// frame reads a frame of at most max bytes.
func (p *peer) frame(max int) (flags byte, body []byte, err error) {
	if flags, err = p.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	var n uint64
	if flags&frameLong != 0 {
		var size [8]byte
		_, err = io.ReadFull(p.in, size[:])
		n = binary.BigEndian.Uint64(size[:])
	} else {
		var size byte
		size, err = p.in.ReadByte()
		n = uint64(size)
	}
	switch {
	case err != nil:
		return 0, nil, unexpectedEnd(err)
	case n > uint64(max):
		return 0, nil, fmt.Errorf("%w: a message is longer than it may be", errProtocol)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, p.in, int64(n)); err != nil {
		return 0, nil, unexpectedEnd(err)
	}
	return flags, b.Bytes(), nil
}

func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
