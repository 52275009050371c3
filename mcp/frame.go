// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"fmt"
	"io"
)

// maxValues is how many values a message may be made of. Each costs its reader some
// hundred bytes however small it is: without it 16 MiB of [] were 400 MB here.
const maxValues = 200_000

// frame counts what the message that is being read is made of.
type frame struct {
	values          int
	inText, escaped bool
}

// take counts what p adds; false is that it is too much.
func (f *frame) take(p []byte, lines bool) bool {
	for _, c := range p {
		switch {
		case lines && c == '\n': // there is none within a text
			*f = frame{}
		case f.escaped:
			f.escaped = false
		case f.inText && c == '\\':
			f.escaped = true
		case c == '"':
			f.inText = !f.inText
		case !f.inText && (c == ',' || c == '[' || c == '{'):
			if f.values++; f.values > maxValues {
				return false
			}
		}
	}
	return true
}

// framed is a reader of messages none of which is made of too much: of lines, or of one
// body. After the first that is it reads no more, and refused hears of it.
type framed struct {
	io.ReadCloser
	lines   bool
	refused func(error)

	frame frame
	err   error
}

func (f *framed) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.ReadCloser.Read(p)
	if f.frame.take(p[:n], f.lines) {
		return n, err
	}
	f.err = fmt.Errorf("a message is made of more than %d values", maxValues)
	if f.refused != nil {
		f.refused(f.err)
	}
	return 0, f.err
}
