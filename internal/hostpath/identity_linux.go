// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"io/fs"
	"syscall"
)

// Identity names the very file that info is of: device and inode.
func Identity(info fs.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	return "?"
}
