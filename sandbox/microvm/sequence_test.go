// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
)

// sequence is a writer of lines that are to be the numbers from 1 on.
type sequence struct {
	mu     sync.Mutex
	line   []byte
	last   int
	wrong  string        // the first line that is not the next number
	enough chan struct{} // closed at the number until
	until  int
}

// numbers is a reader of lines that are the numbers from 1 on, until it is over.
type numbers struct {
	last int
	rest []byte
	over atomic.Bool
}

// Read implements io.Reader.
func (n *numbers) Read(p []byte) (int, error) {
	for len(n.rest) < len(p) && !n.over.Load() {
		n.last++
		n.rest = strconv.AppendInt(n.rest, int64(n.last), 10)
		n.rest = append(n.rest, '\n')
	}
	if len(n.rest) == 0 {
		return 0, io.EOF
	}
	had := copy(p, n.rest)
	n.rest = n.rest[had:]
	return had, nil
}

// more is closed when n more numbers have come.
func (s *sequence) more(n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enough, s.until = make(chan struct{}), s.last+n
	return s.enough
}

// Write implements io.Writer.
func (s *sequence) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(s.line, p...)
	for {
		line, rest, found := bytes.Cut(s.line, []byte("\n"))
		if !found {
			return len(p), nil
		}
		n, err := strconv.Atoi(string(line))
		if (err != nil || n != s.last+1) && s.wrong == "" {
			s.wrong = fmt.Sprintf("after %d comes %q", s.last, line)
		}
		s.line = rest
		if s.last = n; s.enough != nil && s.last >= s.until {
			close(s.enough)
			s.enough = nil
		}
	}
}
