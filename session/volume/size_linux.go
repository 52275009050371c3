// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// What is counted of a volume: a tree may be as deep and as wide as code likes.
const (
	maxDepth   = 128
	maxCounted = 4 << 20
)

// sizeOf counts what a directory has on the disk, through no link and by descriptors. It
// says whether that is all.
func sizeOf(dir *os.File) (bytes int64, whole bool) {
	c := counting{left: maxCounted}
	whole = c.count(int(dir.Fd()), ".", 0)
	return c.bytes, whole
}

type counting struct {
	bytes int64
	left  int
}

func (c *counting) count(parent int, name string, depth int) (whole bool) {
	if depth > maxDepth {
		return false
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	whole = true
	for {
		names, err := dir.Readdirnames(4096)
		for _, n := range names {
			var st unix.Stat_t
			if c.left--; c.left < 0 {
				return false
			}
			if unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // gone meanwhile
			}
			c.bytes += st.Blocks * 512
			if st.Mode&unix.S_IFMT == unix.S_IFDIR && !c.count(fd, n, depth+1) {
				whole = false
			}
		}
		if err != nil || len(names) == 0 {
			return whole && (err == nil || errors.Is(err, io.EOF))
		}
	}
}
