// SPDX-License-Identifier: Apache-2.0

// Package ext4 makes empty file systems, in files with holes: what is written is the
// beginning of each, some kilobytes in all. They have no copies of the superblock, and no
// journal: what is in them ends with a machine that breaks off, and is written out before a
// machine is written down. So there is no list of orphans either: what was deleted and still
// open keeps its blocks where another machine begins with the file system alone.
//
// The format is the kernel's (Documentation/filesystems/ext4). The tables of inodes are
// holes, which read as the zeros that a group is told to have (INODE_ZEROED), and the
// kernel makes the bitmaps of a group when it first uses it (BLOCK_UNINIT, INODE_UNINIT).
package ext4

import (
	"encoding/binary"
	"io"
)

// Options say what a file system is to be.
type Options struct {
	// Size is how many bytes files and directories can have, in whole blocks. The file
	// system itself is larger: see Length.
	Size int64
	// Inodes is how many files and directories there can be, at least 1. Where Size is
	// more than some 100 GiB there can be somewhat fewer.
	Inodes int64
	UUID   [16]byte
	// Mode, UID and GID are the root directory's.
	Mode     uint16
	UID, GID uint32
}

// Length is how many bytes a file system of these options takes, holes included.
// ErrUnsupported when there are too few inodes for its size, ErrInvalid when it is no size.
func (o *Options) Length() (int64, error) {
	l, err := layoutFor(o.Size, o.Inodes)
	if err != nil {
		return 0, err
	}
	return l.blocks * Block, nil
}

// Format makes a file system in w, of which Length bytes read as zeros.
func Format(w io.WriterAt, o Options) error {
	l, err := layoutFor(o.Size, o.Inodes)
	if err != nil {
		return err
	}
	f := &formatter{layout: l, Options: o, w: w}
	f.write(1024, f.superblock())
	f.write(Block, f.descriptors())
	f.bitmaps()
	f.rootDirectory()
	return f.err
}

// formatter writes; after an error it does nothing more.
type formatter struct {
	*layout
	Options
	w   io.WriterAt
	err error
}

func (f *formatter) write(at int64, b []byte) {
	if f.err == nil {
		_, f.err = f.w.WriteAt(b, at)
	}
}

// Where a group's own blocks are; the root directory is the first group's last one.
func (f *formatter) blockBitmap(group int64) int64 {
	if group == 0 {
		return 1 + f.tableOfGroups()
	}
	return group * f.perGroup
}

func (f *formatter) rootBlock() int64 { return f.used(0) - 1 }

// Features, by the kernel's names (fs/ext4/ext4.h).
const (
	compatExtAttr      = 0x8
	compatDirIndex     = 0x20
	compatSparseSuper2 = 0x200 // no copies of the superblock: none are named
	incompatFileType   = 0x2
	incompatExtents    = 0x40
	roLargeFile        = 0x2
	roHugeFile         = 0x8
	roGDTChecksum      = 0x10
	roDirNlink         = 0x20
	roExtraIsize       = 0x40

	magic       = 0xEF53
	stateClean  = 1
	onErrorRO   = 2
	halfMD4     = 1
	mountXattr  = 0x4
	mountACL    = 0x8
	hashSigned  = 1
	extraInode  = 32
	inodeUninit = 0x1
	blockUninit = 0x2
	inodeZeroed = 0x4
)

// superblock is struct ext4_super_block.
func (f *formatter) superblock() []byte {
	b := make([]byte, 1024)
	two := func(at int, n int64) { binary.LittleEndian.PutUint16(b[at:], uint16(n)) }
	four := func(at int, n int64) { binary.LittleEndian.PutUint32(b[at:], uint32(n)) }
	free := f.blocks
	for g := range f.groups {
		free -= f.used(g)
	}
	four(0, f.groups*f.layout.inodes)
	four(4, f.blocks)
	four(12, free)
	four(16, f.files())
	four(24, 2) // a block is 1024 << 2
	four(28, 2)
	four(32, f.perGroup)
	four(36, f.perGroup)
	four(40, f.layout.inodes)
	two(54, 0xffff) // no check after so many mounts
	two(56, magic)
	two(58, stateClean)
	two(60, onErrorRO)
	four(76, 1) // with features
	four(84, f.firstInode)
	two(88, inodeSize)
	four(92, compatExtAttr|compatDirIndex|compatSparseSuper2)
	four(96, incompatFileType|incompatExtents)
	four(100, roLargeFile|roHugeFile|roGDTChecksum|roDirNlink|roExtraIsize)
	copy(b[104:], f.UUID[:])
	copy(b[236:], f.UUID[:]) // the seed of directories' hashes
	b[252] = halfMD4
	four(256, mountXattr|mountACL)
	two(348, extraInode)
	two(350, extraInode)
	four(352, hashSigned)
	return b
}

// descriptors is the table of groups.
func (f *formatter) descriptors() []byte {
	b := make([]byte, f.groups*descriptor)
	for g := range f.groups {
		d := b[g*descriptor:][:descriptor]
		two := func(at int, n int64) { binary.LittleEndian.PutUint16(d[at:], uint16(n)) }
		four := func(at int, n int64) { binary.LittleEndian.PutUint32(d[at:], uint32(n)) }
		first := f.blockBitmap(g)
		four(0, first)
		four(4, first+1)
		four(8, first+2)
		two(12, f.length(g)-f.used(g))
		inodes, flags := f.layout.inodes, int64(inodeZeroed|inodeUninit|blockUninit)
		if g == f.groups-1 {
			flags &^= blockUninit // its bitmap says where it ends
		}
		if g == 0 {
			inodes -= f.firstInode - 1
			flags = inodeZeroed
			two(16, 1) // directories
		}
		two(14, inodes)
		two(18, flags)
		two(28, inodes) // which were never used
		two(30, int64(f.checksum(g, d[:30])))
	}
	return b
}

// checksum is that of a group's entry.
func (f *formatter) checksum(group int64, entry []byte) uint16 {
	sum := crc16(0xffff, f.UUID[:])
	sum = crc16(sum, binary.LittleEndian.AppendUint32(nil, uint32(group)))
	return crc16(sum, entry)
}

// crc16 is the kernel's (lib/crc16.c): polynomial x^16 + x^15 + x^2 + 1, reflected.
func crc16(sum uint16, b []byte) uint16 {
	for _, c := range b {
		sum ^= uint16(c)
		for range 8 {
			low := sum & 1
			if sum >>= 1; low != 0 {
				sum ^= 0xA001
			}
		}
	}
	return sum
}

// bitmaps are those of the first group, and of the blocks of the last.
func (f *formatter) bitmaps() {
	for _, g := range []int64{0, f.groups - 1} {
		f.write(f.blockBitmap(g)*Block, bitmap(f.used(g), f.length(g)))
	}
	f.write((f.blockBitmap(0)+1)*Block, bitmap(f.firstInode-1, f.layout.inodes))
}

// bitmap has the first bits set, and those that stand for nothing.
func bitmap(used, length int64) []byte {
	b := make([]byte, Block)
	for i := range int64(perBitmap) {
		if i < used || i >= length {
			b[i/8] |= 1 << (i % 8)
		}
	}
	return b
}

// rootDirectory is inode 2, and the block that it has.
func (f *formatter) rootDirectory() {
	b := make([]byte, inodeSize)
	two := func(at int, n uint32) { binary.LittleEndian.PutUint16(b[at:], uint16(n)) }
	four := func(at int, n int64) { binary.LittleEndian.PutUint32(b[at:], uint32(n)) }
	const directory, extents, extentMagic = 0x4000, 0x80000, 0xF30A
	two(0, directory|uint32(f.Mode))
	two(2, f.UID)
	two(120, f.UID>>16)
	two(24, f.GID)
	two(122, f.GID>>16)
	four(4, Block)
	two(26, 2) // names: its own and "."
	four(28, Block/512)
	four(32, extents)
	two(40, extentMagic)
	two(42, 1) // extents, of 4 that have room
	two(44, 4)
	two(56, 1) // block
	four(60, f.rootBlock())
	two(128, extraInode)
	f.write((f.blockBitmap(0)+2)*Block+inodeSize, b)

	d := make([]byte, Block)
	const itself, isDirectory = 2, 2
	for _, e := range []struct{ at, length, name int }{{0, 12, 1}, {12, Block - 12, 2}} {
		binary.LittleEndian.PutUint32(d[e.at:], itself)
		binary.LittleEndian.PutUint16(d[e.at+4:], uint16(e.length))
		d[e.at+6], d[e.at+7] = byte(e.name), isDirectory
		copy(d[e.at+8:], "..."[:e.name])
	}
	f.write(f.rootBlock()*Block, d)
}
