// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/api/bounds"
)

// maxValues is how many values a message may be made of: results of tools may be
// long lists. Without it 16 MiB of [] were 400 MB here.
const maxValues = 200_000

// framed is a reader of messages none of which is made of too much: of lines, or of one
// body. After the first that is it reads no more, and refused hears of it.
type framed struct {
	io.ReadCloser
	lines   bool
	refused func(error)

	values bounds.Values // of the message that is being read
	err    error
}

func (f *framed) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.ReadCloser.Read(p)
	if f.take(p[:n]) {
		return n, err
	}
	f.err = fmt.Errorf("a message is made of more than %d values", maxValues)
	if f.refused != nil {
		f.refused(f.err)
	}
	return 0, f.err
}

// take counts what p adds; false is that it is too much.
func (f *framed) take(p []byte) bool {
	for f.lines {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			break
		}
		if !f.values.Take(p[:end], maxValues) {
			return false
		}
		f.values, p = bounds.Values{}, p[end+1:] // there is no line's end within a text
	}
	return f.values.Take(p, maxValues)
}
