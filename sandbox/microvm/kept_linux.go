// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyDisk copies a disk of a machine that stands still, with its holes; where the file
// system can, both share what they have in common. to is new and private.
func copyDisk(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := duplicateDisk(out, in); err != nil {
		return err
	}
	return out.Close()
}

// duplicateDisk copies in to out, which is empty.
func duplicateDisk(out, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New(in.Name() + " is no regular file")
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		from, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		}
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		end, err := unix.Seek(int(in.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		end = min(end, info.Size())
		if _, err := io.Copy(io.NewOffsetWriter(out, from), io.NewSectionReader(in, from, end-from)); err != nil {
			return err
		}
		at = end
	}
	return nil
}
