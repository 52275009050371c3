// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// sealed returns program as an open file without a name that nobody can
// change, open for reading only: gVisor takes no other as a first process.
func sealed(program []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(Argv0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("guest agent: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), Argv0)
	defer f.Close()
	if _, err := f.Write(program); err != nil {
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("guest agent: sealing: %w", err)
	}
	return os.Open("/proc/self/fd/" + strconv.Itoa(fd))
}
