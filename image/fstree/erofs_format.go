// SPDX-License-Identifier: Apache-2.0

package fstree

import "encoding/binary"

// Images are EROFS, the kernel's read-only file system
// (https://docs.kernel.org/filesystems/erofs.html), in the one shape that caisson uses:
//
//	block 0                the superblock, at byte 1024
//	contents of files      each file contiguous, from a block boundary on
//	metadata               inodes of 64 bytes, directories and links mostly inline
//
// Contents come first because they are written while layers are unpacked, in
// one pass, before it is known what the tree will look like. They are not
// compressed and never inline, so that they can be mapped into memory: gVisor
// cannot execute anything else. There are no extended attributes and no
// devices. The same tree gives the same bytes.
//
// The metadata can be written again for another tree with the same contents.
// [ReadEROFS] takes only what [WriteEROFS] makes; it is not a general reader.

const (
	// DataStart is where file contents begin.
	DataStart = Block

	superOffset = 1024
	superSize   = 128
	magic       = 0xE0F5E1E2
	blockBits   = 12
	slotSize    = 32 // inodes are numbered in units of this
	inodeSize   = 64 // the extended form, with times and 32-bit owners
	direntSize  = 12
	// firstNID leaves the number 0 unused: readdir skips entries with it.
	firstNID = inodeSize / slotSize

	// i_format: bit 0 says extended, bits 1 to 3 are the data layout.
	formatPlain  = 1 | 0<<1
	formatInline = 1 | 2<<1

	// S_IFMT and what it may be here.
	typeMask = 0o170000
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000

	// Types of directory entries (EROFS_FT_*).
	entryFile = 1
	entryDir  = 2
	entryLink = 7
)

var le = binary.LittleEndian

// blocks is how many blocks n bytes take.
func blocks(n int64) int64 { return (n + Block - 1) / Block }
