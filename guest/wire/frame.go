// SPDX-License-Identifier: Apache-2.0

// Package wire is what the host and the guest agent agree on. Below HTTP/2 that are
// sessions over a stream ([Opener], [Listener]); above it the frames, the JSON messages,
// and the names of files.
//
// The host trusts none of it. Every reader here has a bound, and allocates by
// what has arrived, never by what was announced.
//
// # Sessions
//
// A session is a fresh connection out of a byte stream that has no connections of its
// own, or that an earlier one left dirty.
//
// The host begins it with the sandbox's [Mark] and a nonce. The guest looks for the mark
// in everything that it reads; where it finds it, the session before ends, whatever it
// was in the middle of, and the guest answers with the mark's complement and the nonce.
// The host throws away all bytes until it sees its own nonce. So a session can begin
// after a checkpoint and restore, after the host process was replaced, in the middle of
// half a frame, behind text that a program printed, and on a serial port that knows no
// end. (The complement keeps a line that echoes from answering for the guest.)
//
//	host → guest   mark[32] nonce[16]            then HTTP/2
//	guest → host   ^mark[32] nonce[16]           then HTTP/2
//
// Closing a session never closes the stream. [Opener] is the host's end,
// [Listener] the guest's; each end has at most one session at a time.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Kind says what a frame carries.
type Kind byte

// The frames of an exec: from the host Start, Stdin and EOF; from the guest
// Started, Stdout, Stderr, Alive and Exit.
const (
	Start   Kind = 'S' // JSON StartRequest, first
	Stdin   Kind = 'i' // bytes
	EOF     Kind = 'e' // empty: no more Stdin
	Started Kind = 's' // JSON StartedEvent, first, unless the program did not start
	Stdout  Kind = 'o' // bytes; everything from a terminal
	Stderr  Kind = 'r' // bytes
	Alive   Kind = 'k' // empty: nothing has happened, the agent lives
	Exit    Kind = 'x' // JSON ExitEvent, last
)

// The frames of a collection, all from the guest.
const (
	File    Kind = 'F' // JSON FileEvent: a file begins
	Data    Kind = 'd' // bytes of the file
	FileEnd Kind = 'f' // JSON FileEndEvent
	Skipped Kind = 'l' // JSON SkippedEvent: a match that is not collected
	Done    Kind = 'D' // JSON DoneEvent, last
)

const (
	// HeaderSize is a frame's header: kind, then the payload's length, big endian.
	HeaderSize = 5
	// MaxData is the longest payload of bytes.
	MaxData = 64 << 10
	// MaxJSON is the longest JSON payload but a StartRequest's.
	MaxJSON = 64 << 10
	// MaxStart is the longest StartRequest: Linux takes 2 MiB of arguments and
	// environment at most, and JSON may need six bytes for one.
	MaxStart = 12 << 20
)

// AppendFrame appends a frame to b.
func AppendFrame(b []byte, k Kind, payload []byte) []byte {
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// AppendJSON appends a frame with v as JSON.
func AppendJSON(b []byte, k Kind, v any) ([]byte, error) {
	p, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	return AppendFrame(b, k, p), nil
}

// Reader reads frames. It is itself the io.Reader of the frame's payload; what
// is left of one is skipped by Next.
type Reader struct {
	r    io.Reader
	left int
}

// NewReader reads frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// limit is the longest payload of a kind, or -1 when there is no such kind.
func (k Kind) limit() int {
	switch k {
	case Stdin, Stdout, Stderr, Data:
		return MaxData
	case EOF, Alive:
		return 0
	case Start:
		return MaxStart
	case Started, Exit, File, FileEnd, Skipped, Done:
		return MaxJSON
	}
	return -1
}

// Next goes to the next frame and returns its kind and its payload's size. The
// error is io.EOF only between two frames.
func (r *Reader) Next() (Kind, int, error) {
	if r.left > 0 {
		if _, err := io.CopyN(io.Discard, r, int64(r.left)); err != nil {
			return 0, 0, unexpected(err)
		}
	}
	var h [HeaderSize]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return 0, 0, err
	}
	k, n := Kind(h[0]), binary.BigEndian.Uint32(h[1:])
	switch limit := k.limit(); {
	case limit < 0:
		return 0, 0, fmt.Errorf("unknown frame 0x%02x", byte(k))
	case uint64(n) > uint64(limit):
		return 0, 0, fmt.Errorf("frame %q of %d bytes is longer than %d", byte(k), n, limit)
	}
	r.left = int(n)
	return k, r.left, nil
}

// Left is how many bytes of the frame's payload were not read yet.
func (r *Reader) Left() int { return r.left }

// Read reads the frame's payload; io.EOF is its end.
func (r *Reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.r.Read(p[:min(len(p), r.left)])
	r.left -= n
	if err != nil && r.left > 0 {
		err = unexpected(err)
	} else if err == io.EOF {
		err = nil // Next will see it
	}
	return n, err
}

// JSON decodes the frame's payload into v.
func (r *Reader) JSON(v any) error {
	b, err := io.ReadAll(r) // bounded by Next
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
