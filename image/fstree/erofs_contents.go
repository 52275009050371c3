// SPDX-License-Identifier: Apache-2.0

package fstree

import (
	"bufio"
	"io"
)

// Contents takes the contents of files, one after the other, and writes them
// where [Write] wants them.
type Contents struct {
	w  *bufio.Writer
	at int64
}

// NewContents begins an image in w, which is empty.
func NewContents(w io.Writer) *Contents {
	c := &Contents{w: bufio.NewWriterSize(w, 1<<20)}
	c.pad(DataStart)
	return c
}

// MoreContents goes on with the contents of an image whose own end at the offset at; w
// writes from there.
func MoreContents(w io.Writer, at int64) *Contents {
	return &Contents{w: bufio.NewWriterSize(w, 1<<20), at: at}
}

// Begin starts a file and gives the offset of its contents.
func (c *Contents) Begin() (int64, error) {
	c.pad(blocks(c.at) * Block)
	return c.at, nil
}

// Write takes the next bytes of the file.
func (c *Contents) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.at += int64(n)
	return n, err
}

// End says where contents end, when all of them are written.
func (c *Contents) End() (int64, error) { return c.at, c.w.Flush() }

var zeros [Block]byte

// pad goes on at the offset to. An error comes back at End.
func (c *Contents) pad(to int64) {
	for c.at < to {
		n, err := c.w.Write(zeros[:min(to-c.at, Block)])
		c.at += int64(n)
		if err != nil {
			return
		}
	}
}
