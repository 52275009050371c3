// SPDX-License-Identifier: Apache-2.0

package probe

import "golang.org/x/sys/unix"

func (p *prober) machineCalls() {
	p.try("iopl", unix.Iopl(3))
	p.try("ioperm", unix.Ioperm(0x80, 1, 1))
	segment := make([]byte, 16)
	_, _, errno := unix.Syscall(unix.SYS_MODIFY_LDT, 1, pointer(segment), uintptr(len(segment)))
	p.hold0("modify_ldt", errno)
}
