// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newTerminals is a detached mount of what terminals asks an engine for.
func newTerminals() (*os.File, error) {
	fs, err := unix.Fsopen("devpts", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{{"max", maxTerminals}, {"mode", "0620"}, {"ptmxmode", "0666"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "devpts"), nil
}
