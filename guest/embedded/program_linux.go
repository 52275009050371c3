// SPDX-License-Identifier: Apache-2.0

//go:build linux && embedguest

package embedded

import (
	_ "embed"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

//go:embed caisson-guest
var program []byte

// Open returns the agent as an open, sealed file without a name. The caller
// closes it.
func Open() (*os.File, error) {
	fd, err := unix.MemfdCreate(Argv0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("guest agent: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), Argv0)
	if _, err := f.Write(program); err != nil {
		f.Close()
		return nil, fmt.Errorf("guest agent: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("guest agent: sealing: %w", err)
	}
	return f, nil
}
