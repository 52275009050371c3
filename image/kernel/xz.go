// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// maxWindow is how much of what is unpacked a format may have us keep to unpack the rest, in
// bytes: what the kernel's own build asks for at most.
const maxWindow = 128 << 20

// maxBlocks is how many blocks an xz file may have, each of which begins with a new window.
const maxBlocks = 256

var (
	errXZ     = errors.New("its xz is damaged")
	errFilter = errors.New("its xz has a filter that is not known here")
)

// tooWide refuses what wants more memory than maxWindow to be unpacked.
func tooWide(window int64) error {
	return fmt.Errorf("it wants %d MiB of memory to be unpacked, and %d are the most", window>>20, maxWindow>>20)
}

// unxz unpacks one stream of xz (The .xz File Format 1.2.0) whose only filter is LZMA2. A
// window of more than maxWindow is refused before there is one. The index at the end, which
// says again what there was, is not read.
type unxz struct {
	in     *bytes.Reader
	kind   byte      // of the check behind each block
	block  io.Reader // nil between two blocks
	blocks int
	sum    hash.Hash // of the block
	left   int       // what followed the block's header
}

func newUnxz(b []byte) (*unxz, error) {
	const size = 12
	if len(b) < size || string(b[:6]) != "\xfd7zXZ\x00" || b[6] != 0 || crc32.ChecksumIEEE(b[6:8]) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, errXZ
	}
	x := &unxz{in: bytes.NewReader(b[size:]), kind: b[7]}
	if x.check() == nil {
		return nil, errors.New("its xz has a check that is not known here")
	}
	return x, nil
}

// check is a new check of the stream's kind; nil where that is not known.
func (x *unxz) check() hash.Hash {
	switch x.kind {
	case 0:
		return none{}
	case 1:
		return crc32.NewIEEE()
	case 4:
		return crc64.New(crc64.MakeTable(crc64.ECMA))
	case 10:
		return sha256.New()
	}
	return nil
}

// none is no check.
type none struct{ hash.Hash }

func (none) Write(p []byte) (int, error) { return len(p), nil }
func (none) Sum(b []byte) []byte         { return b }

// Read unpacks. Its end is io.EOF.
func (x *unxz) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil && len(p) > 0 {
		if x.block == nil {
			if err := x.next(); err != nil {
				return 0, err
			}
		}
		n, err = x.block.Read(p)
		x.sum.Write(p[:n])
		if err == io.EOF {
			err = x.ended()
		}
	}
	return n, err
}

// next begins a block; io.EOF where the index begins.
func (x *unxz) next() error {
	size, err := x.in.ReadByte()
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	if size == 0 {
		return io.EOF
	}
	head := append([]byte{size}, make([]byte, int(size)*4+3)...)
	if _, err := io.ReadFull(x.in, head[1:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	end := len(head) - 4
	if crc32.ChecksumIEEE(head[:end]) != binary.LittleEndian.Uint32(head[end:]) {
		return errXZ
	}
	flags, rest := head[1], head[2:end]
	for _, has := range []byte{0x40, 0x80} { // sizes, which a block has or not
		if flags&has != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return errXZ
			}
			rest = rest[n:]
		}
	}
	const lzma2 = 0x21
	if flags&^0xc0 != 0 || len(rest) < 3 || rest[0] != lzma2 || rest[1] != 1 {
		return errFilter
	}
	window, err := lzma.DecodeDictCap(rest[2])
	if err != nil {
		return errXZ
	}
	if window > maxWindow {
		return tooWide(window)
	}
	if x.blocks++; x.blocks > maxBlocks {
		return fmt.Errorf("its xz has more than %d blocks", maxBlocks)
	}
	x.sum, x.left = x.check(), x.in.Len()
	x.block, err = lzma.Reader2Config{DictCap: max(int(window), lzma.MinDictCap)}.NewReader2(x.in)
	return err
}

// ended looks at what follows a block's contents: zeros up to a multiple of 4, and the check.
func (x *unxz) ended() error {
	x.block = nil
	want := x.sum.Sum(nil)
	if x.kind != 10 { // the others are numbers, which Sum has the other way round
		for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
			want[i], want[j] = want[j], want[i]
		}
	}
	pad := (x.in.Len() - x.left) & 3
	got := make([]byte, pad+len(want))
	if _, err := io.ReadFull(x.in, got); err != nil {
		return io.ErrUnexpectedEOF
	}
	if !bytes.Equal(got, append(make([]byte, pad), want...)) {
		return errXZ
	}
	return nil
}
