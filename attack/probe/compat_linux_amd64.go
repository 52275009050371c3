// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// int80 makes a system call by the entry of 32-bit programs.
func int80(number, a, b uintptr) uintptr

// memfd_create's number there.
const i386MemfdCreate = 356

// bit32 makes a memfd by the 32-bit entry: its name shows on the host.
func (p *prober) bit32() {
	// The name must lie where 32 bits reach.
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_32BIT)
	if err != nil {
		p.try("map a page below 4 GiB", err)
		return
	}
	copy(page, MemfdName("i386", p.Nonce)+"\x00")
	p.say("try memfd_create by int 0x80") // it may be the last thing that this process says
	got := int32(int80(i386MemfdCreate, uintptr(unsafe.Pointer(&page[0])), 0))
	if got < 0 {
		p.try("memfd_create by int 0x80", unix.Errno(-got))
		return
	}
	p.hold("memfd_create by int 0x80", uintptr(got), 0)
}

// x32 makes one by the entry of the x32 ABI.
func (p *prober) x32() {
	name, _ := unix.BytePtrFromString(MemfdName("x32", p.Nonce))
	p.say("try memfd_create by the x32 number")
	fd, _, errno := unix.RawSyscall(0x40000000|unix.SYS_MEMFD_CREATE, uintptr(unsafe.Pointer(name)), 0, 0)
	p.hold("memfd_create by the x32 number", fd, errno)
}
