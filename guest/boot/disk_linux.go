// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Of linux/blkpg.h.
const (
	blkpg        = 0x1269
	addPartition = 1
)

// mountPart mounts the file system of a part. The kernel is told of each part: there is
// nothing on the disk that says how it is divided.
func (c *Config) mountPart(p *Part, at string, flags uintptr) error {
	if c.parts.device == "" {
		var err error
		if c.parts.device, err = block(c.Disk); err != nil {
			return err
		}
	}
	c.parts.n++
	if err := c.parts.tell(p); err != nil {
		return fmt.Errorf("divide the disk: %w", err)
	}
	return mount(c.parts.device+strconv.Itoa(c.parts.n), at, "ext4", flags, "")
}

func (p *parts) tell(piece *Part) error {
	f, err := os.Open(p.device)
	if err != nil {
		return err
	}
	defer f.Close()
	part := struct { // struct blkpg_partition
		start, length int64
		number        int32
		_             [2][64]byte
	}{start: piece.Offset, length: piece.Length, number: int32(p.n)}
	arg := struct { // struct blkpg_ioctl_arg
		op, flags, size int32
		part            unsafe.Pointer
	}{op: addPartition, size: int32(unsafe.Sizeof(part)), part: unsafe.Pointer(&part)}
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), blkpg, uintptr(unsafe.Pointer(&arg))); e != 0 {
		return e
	}
	return nil
}
