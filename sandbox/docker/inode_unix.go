// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package docker

import (
	"io/fs"
	"syscall"
)

func objectOf(info fs.FileInfo) object {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return object{}
	}
	return object{uint64(st.Dev), uint64(st.Ino)}
}
