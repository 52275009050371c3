// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/api"
)

// Why a line is no message of ours, whatever stands in it.
var (
	errLong = fmt.Errorf("a message is longer than %d MiB", maxFrame>>20)
	errMuch = fmt.Errorf("a message is made of more than %d values", maxValues)
)

// lines reads messages, each in a line of its own.
type lines struct{ from *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, 64<<10)} }

// next is the next line that is not empty, without its end. Of one that is too long it
// keeps nothing, and reads it to its end; it and one that is made of too much are errLong
// and errMuch, after which the next can be read. Any other error is the stream's.
func (l *lines) next() ([]byte, error) {
	for {
		one, err := l.line()
		one = bytes.TrimSpace(one)
		switch {
		case errors.Is(err, errLong), err != nil && len(one) == 0:
			return nil, err
		case len(one) == 0:
			continue
		case !new(api.Values).Take(one, maxValues):
			return one, errMuch
		}
		return one, nil // what comes after the last one is found by the next
	}
}

// line is a copy, since what is read of a message refers to it.
func (l *lines) line() (one []byte, err error) {
	for long := false; ; {
		part, err := l.from.ReadSlice('\n')
		if long = long || len(one)+len(part) > maxFrame; long {
			one = nil
		} else {
			one = append(one, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long:
			return nil, errLong
		default:
			return one, err
		}
	}
}
