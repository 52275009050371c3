// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// nextData is where, from at on, the next byte is that is not in a hole; io.EOF where there
// is none.
func nextData(f *os.File, at int64) (int64, error) {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch err {
	case nil:
		return data, nil
	case unix.ENXIO:
		return 0, io.EOF
	case unix.EINVAL: // a file system without holes
		return at, nil
	}
	return 0, os.NewSyscallError("lseek", err)
}
