// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
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
