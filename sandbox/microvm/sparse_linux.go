// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bytes"
	"os"
)

// sparse writes a file of which pages that hold zeros alone take no room: much of a machine's
// memory is free.
type sparse struct {
	f  *os.File
	at int64
}

const pageSize = 4 << 10

var zeroPage [pageSize]byte

// Write implements io.Writer.
func (s *sparse) Write(p []byte) (int, error) {
	for from := 0; from < len(p); {
		to := from
		for to < len(p) && !zeros(p, to) {
			to = pageEnd(p, to)
		}
		if n, err := s.f.WriteAt(p[from:to], s.at); err != nil {
			return from + n, err
		}
		hole := to
		for hole < len(p) && zeros(p, hole) {
			hole = pageEnd(p, hole)
		}
		s.at += int64(hole - from)
		from = hole
	}
	return len(p), nil
}

func pageEnd(p []byte, at int) int { return min(len(p), at+pageSize) }

func zeros(p []byte, at int) bool {
	page := p[at:pageEnd(p, at)]
	return bytes.Equal(page, zeroPage[:len(page)])
}

// end gives the file its length, holes included.
func (s *sparse) end() error { return s.f.Truncate(s.at) }
