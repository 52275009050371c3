// SPDX-License-Identifier: Apache-2.0

package ext4

import (
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	// Block is the block size, in bytes.
	Block = 4096
	// perBitmap is how many blocks or inodes a group may have: the bits of a block.
	perBitmap = Block * 8

	inodeSize    = 256
	inodesInData = Block / inodeSize
	// reserved is how many inodes come before the first that a file may have.
	reserved = 10
	// descriptor is the size of a group's entry in the table of groups.
	descriptor = 32

	maxBlocks = 1<<32 - 1 // without the feature "64bit"
	maxInodes = 1<<32 - 1 // the superblock's field has 32 bits
	triedMore = 64        // groups beyond the least
)

// layout is how a file system is divided: equal groups of blocks, each with its two bitmaps
// and its part of the table of inodes at its beginning; the first has the superblock, the
// table of groups, and the root directory besides.
type layout struct {
	groups     int64
	blocks     int64 // in all
	perGroup   int64 // blocks of a group; the last one may have fewer
	inodes     int64 // of a group
	firstInode int64 // the inodes below it are no file's
	table      int64 // blocks of a group's table of inodes
}

// layoutFor is a layout with that many bytes and inodes for files; where so many groups
// cannot have that number of inodes, with somewhat fewer.
func layoutFor(size, inodes int64) (*layout, error) {
	if size < 0 || inodes < 1 || size/Block > maxBlocks || inodes > maxInodes {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "make file system", "%d bytes and %d files are no size of one", size, inodes)
	}
	want := size / Block
	least := max(1, (want+perBitmap-1)/perBitmap, (inodes+reserved+perBitmap-1)/perBitmap)
	for _, total := range []func(groups int64) int64{
		func(groups int64) int64 { return divideUp(inodes+reserved, groups*inodesInData) },
		func(groups int64) int64 { return (inodes + reserved) / (groups * inodesInData) },
	} {
		for groups := least; groups < least+triedMore; groups++ {
			l := &layout{groups: groups, table: total(groups)}
			if l.fit(want, inodes) {
				return l, nil
			}
		}
	}
	return nil, &sandbox.Error{
		Op: "make file system", Kind: sandbox.ErrUnsupported,
		Problem: fmt.Sprintf("one of %d bytes cannot have as few as %d files", size, inodes), Hint: fmt.Sprintf("allow %d files", min(least*2*inodesInData, 1<<31)),
	}
}

// fit divides into l.groups, each with such a table, and says whether that can be.
func (l *layout) fit(want, inodes int64) bool {
	l.inodes = l.table * inodesInData
	// What is too many for the number asked for is taken from the first group.
	l.firstInode = max(l.groups*l.inodes-inodes, reserved) + 1
	own := l.groups*l.groupBlocks() + l.first()
	l.blocks = want + own
	for spare := int64(-1); spare != held(l.blocks); {
		spare = held(l.blocks)
		l.blocks = want + own + spare
	}
	l.perGroup = roundUp(divideUp(l.blocks, l.groups), 8)
	switch {
	case l.table == 0, l.blocks > maxBlocks, l.groups*l.inodes > maxInodes, l.perGroup > perBitmap, l.inodes > perBitmap, l.firstInode > l.inodes:
		return false
	case l.groups == 1:
		return true
	}
	return l.groupBlocks()+l.first() <= l.perGroup && l.blocks-(l.groups-1)*l.perGroup > l.groupBlocks()
}

// groupBlocks are what each group has of its own.
func (l *layout) groupBlocks() int64 { return 2 + l.table }

// first are what the first group has besides: the superblock, the table of groups and the
// root directory.
func (l *layout) first() int64 { return 1 + l.tableOfGroups() + 1 }

func (l *layout) tableOfGroups() int64 { return divideUp(l.groups*descriptor, Block) }

// files is how many inodes files can have.
func (l *layout) files() int64 { return l.groups*l.inodes - l.firstInode + 1 }

// length is how many blocks a group has.
func (l *layout) length(group int64) int64 { return min(l.perGroup, l.blocks-group*l.perGroup) }

// used are how many of a group's blocks no file can have.
func (l *layout) used(group int64) int64 {
	if group == 0 {
		return l.groupBlocks() + l.first()
	}
	return l.groupBlocks()
}

// held is how many blocks the kernel keeps from files, for its own tables
// (ext4_set_resv_clusters).
func held(blocks int64) int64 { return min(blocks/50, 4096) }

func divideUp(n, by int64) int64 { return (n + by - 1) / by }
func roundUp(n, to int64) int64  { return divideUp(n, to) * to }
