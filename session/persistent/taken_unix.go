// SPDX-License-Identifier: Apache-2.0

//go:build unix

package persistent

import (
	"io/fs"
	"syscall"
)

// taken is what a file takes of the disk, in bytes.
func taken(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512 // whatever the file system's block is, as stat(2) says
	}
	return info.Size()
}
