// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// DirectoryMark is the mark of a directory: its device, its inode and when it was made. It is
// neither a name, which another directory may have later, nor anything in it, which a
// copy has too. Some file systems do not say when: that is 0 then, and a directory may
// have the mark of one that is gone. It is empty where there is no directory.
func DirectoryMark(dir string) string {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return ""
	}
	var born uint64
	if st.Mask&unix.STATX_BTIME != 0 {
		born = uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec)
	}
	word := func(n uint64) string { return strconv.FormatUint(n, 36) }
	return word(unix.Mkdev(st.Dev_major, st.Dev_minor)) + "-" + word(st.Ino) + "-" + word(born)
}
