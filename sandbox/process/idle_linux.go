// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// idleCode sleeps for ever.
var idleCode = map[elf.Machine][]byte{
	elf.EM_X86_64: {
		0xb8, 0x22, 0x00, 0x00, 0x00, // mov eax, SYS_pause
		0x0f, 0x05, // syscall
		0xeb, 0xf7, // jmp to the mov
	},
	elf.EM_AARCH64: {
		0x00, 0x00, 0x80, 0xd2, // mov x0, 0
		0x01, 0x00, 0x80, 0xd2, // mov x1, 0
		0x02, 0x00, 0x80, 0xd2, // mov x2, 0
		0x03, 0x00, 0x80, 0xd2, // mov x3, 0
		0x28, 0x09, 0x80, 0xd2, // mov x8, SYS_ppoll
		0x01, 0x00, 0x00, 0xd4, // svc 0
		0xfa, 0xff, 0xff, 0x17, // b to the first mov
	},
}

// idleProgram is the first process of every sandbox: a program without data,
// stack or library that does nothing. Orphans fall to it; because it ignores
// SIGCHLD the kernel reaps them by itself (wait(2)).
func idleProgram(machine elf.Machine) []byte {
	const base = 0x400000
	code := idleCode[machine]
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phentsize: 56, Phnum: 2, Phoff: 64, Shentsize: 64,
	}
	start := uint64(header.Ehsize + header.Phnum*header.Phentsize)
	header.Entry = base + start
	size := start + uint64(len(code))
	segments := [2]elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 0x10000},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	}
	var b bytes.Buffer
	for _, part := range []any{header, segments, code} {
		_ = binary.Write(&b, binary.LittleEndian, part) // a Buffer takes everything
	}
	return b.Bytes()
}

// idle is the program as an open file without a name. No user may read it: so
// the kernel lets no other process look into what runs it (ptrace(2), "Ptrace
// access mode checking").
var idle = sync.OnceValues(func() (*os.File, error) {
	machine, ok := machines[runtime.GOARCH]
	if !ok {
		return nil, errors.New("no first process for " + runtime.GOARCH)
	}
	const executable = 0x10 // MFD_EXEC, for hosts whose vm.memfd_noexec wants it said; Linux 6.3
	fd, err := unix.MemfdCreate("init", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|executable)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("init", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "init")
	defer f.Close()
	if _, err := f.Write(idleProgram(machine)); err != nil {
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, os.NewSyscallError("seal", err)
	}
	// What is open for writing cannot be executed.
	sealed, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, err
	}
	if err := sealed.Chmod(0o111); err != nil {
		sealed.Close()
		return nil, err
	}
	return sealed, nil
})

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
