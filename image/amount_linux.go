// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// amount is how much a packed root has.
type amount struct {
	files int   // names
	text  int64 // bytes of names and of what links lead to: they are held in memory
	bytes int64 // of files, in whole blocks
}

// maxPack is how much one may have. It is found out before anything is written.
var maxPack = amount{files: 1_000_000, text: 128 << 20, bytes: 16 << 30}

// size is about how many bytes its file takes: contents, an inode and an entry of a directory
// for each name.
func (a amount) size() int64 { return a.bytes + 128*int64(a.files) + a.text }

func wholeBlocks(n int64) int64 { return (n + fstree.Block - 1) / fstree.Block * fstree.Block }

// bounded refuses more than may be packed.
func (p *packer) bounded() error {
	what := ""
	switch {
	case p.total.files > p.max.files:
		what = fmt.Sprintf("%d files", p.max.files)
	case p.total.text > p.max.text:
		what = fmt.Sprintf("%d MiB of names and links", p.max.text>>20)
	case p.total.bytes > p.max.bytes:
		what = fmt.Sprintf("%d GiB", p.max.bytes>>30)
	default:
		return nil
	}
	p.over = &sandbox.Error{Op: "pack root filesystem", Kind: sandbox.ErrUnsupported, Problem: "a virtual machine gets a copy, and it is more than " + what,
		Hint: "name a directory that is a root and nothing else, put it into an image (--image), or run on a level that shows the host's files: --isolation gvisor"}
	return p.over
}

// spare is what a pack leaves free on its disk, in bytes; caisson doctor wants as much.
const spare = 1 << 30

// freeIn is how many bytes may be written to the disk of a directory before there is no more
// than spare.
func freeIn(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, cacheError("look at "+dir, err)
	}
	return int64(min(fs.Bavail, 1<<50/uint64(fs.Bsize)))*fs.Bsize - spare, nil
}

// noRoom is about a disk that has not enough.
func noRoom(need, free int64) error {
	return &sandbox.Error{Op: "pack root filesystem", Kind: sandbox.ErrUnavailable,
		Problem: fmt.Sprintf("it takes %d MiB, and the disk of the state directory has %d MiB, and 1 GiB to be left free", need>>20, max(free, 0)>>20),
		Hint:    "caisson image prune --all removes packs and images that are not in use (a paused machine whose pack is gone begins anew with its files); or have the state directory on another disk (--state, CAISSON_STATE)"}
}
