// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The streams of a multiplexed connection, as the Engine API numbers them
// (https://docs.docker.com/reference/api/engine/, "Attach to a container").
const (
	frameStdin  = 0
	frameStdout = 1
	frameStderr = 2
)

// demux reads the frames of an attached container: eight bytes, of which the
// first names the stream and the last four the length, then that many bytes.
//
// It hands out stdout as it comes and gives stderr to log, after which Read
// returns nothing without an error, so that a reader can look there. It never allocates
// by a frame's length and keeps its place in a frame when a read fails, as one
// does at a deadline.
type demux struct {
	r   io.Reader
	log io.Writer // takes everything; its error is not asked for

	head [8]byte
	have int    // bytes of head that were read
	left uint32 // bytes of the frame that were not
	kind byte
	err  error // sticky: the stream makes no sense any more
}

// Read hands out bytes of stdout.
func (d *demux) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if d.err != nil {
			return 0, d.err
		}
		if d.left == 0 {
			if err := d.header(); err != nil {
				return 0, err
			}
			continue
		}
		n, err := d.r.Read(p[:min(uint32(len(p)), d.left)])
		d.left -= uint32(n)
		if n > 0 && d.kind == frameStderr {
			_, _ = d.log.Write(p[:n])
			return 0, d.ended(err)
		}
		if n > 0 || err != nil {
			return n, d.ended(err)
		}
	}
}

// header reads a frame's first eight bytes.
func (d *demux) header() error {
	n, err := d.r.Read(d.head[d.have:])
	if d.have += n; d.have < len(d.head) {
		if err == io.EOF && d.have > 0 {
			return io.ErrUnexpectedEOF
		}
		return err // nil: again
	}
	d.have = 0
	d.kind, d.left = d.head[0], binary.BigEndian.Uint32(d.head[4:])
	if d.kind > frameStderr || d.head[1]|d.head[2]|d.head[3] != 0 {
		d.err = fmt.Errorf("the engine sent a frame that begins %x", d.head)
		return d.err
	}
	return nil
}

// ended tells an end between two frames from one within.
func (d *demux) ended(err error) error {
	if err == io.EOF && d.left > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	kept    []byte
	maximum int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-t.maximum):]...)
	if over := len(t.kept) - t.maximum; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(p), nil
}
