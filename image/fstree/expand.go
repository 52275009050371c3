// SPDX-License-Identifier: Apache-2.0

package fstree

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds what a zstd stream makes us keep in memory: as much as the
// highest level of the usual tools needs.
const maxWindow = 128 << 20

// expand looks at how the layer begins: what a manifest says of its
// compression is not always true.
func (s *stream) expand(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<16)
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return broken(err, "a layer cannot be read")
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return broken(err, "a layer is no gzip stream")
		}
		s.plain = ahead(s, z)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return broken(err, "a layer is no zstd stream")
		}
		s.closers = append(s.closers, z.Close)
		s.plain = ahead(s, z)
	default:
		s.plain = in
	}
	return nil
}
