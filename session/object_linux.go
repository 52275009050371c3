// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"io/fs"
	"syscall"
)

// objectOf names the very file that info is of: device and inode.
func objectOf(info fs.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	return "?"
}
