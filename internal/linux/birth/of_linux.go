// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Of is the mark of a directory: its device, its inode and when it was made. It is
// neither a name, which another directory may have later, nor anything in it, which a
// copy has too. It is empty where that cannot be found out.
func Of(dir string) string {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return ""
	}
	word := func(n uint64) string { return strconv.FormatUint(n, 36) }
	return word(unix.Mkdev(st.Dev_major, st.Dev_minor)) + "-" + word(st.Ino) + "-" + word(uint64(st.Btime.Sec)*1e9+uint64(st.Btime.Nsec))
}
