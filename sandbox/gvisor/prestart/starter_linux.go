// SPDX-License-Identifier: Apache-2.0

package prestart

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// What the assembly knows, too.
const (
	base       = 0x400000    // where a program is loaded
	goferAt    = base + 0x80 // capabilities that the gofer's bounding set keeps
	kernelAt   = base + 0x88 // the same for the kernel
	pathAt     = base + 0x90 // a path, which ends with a NUL
	maxPath    = 0x60
	codeAt     = base + 0x100
	headerSize = 64 + 56 // of an ELF file with one segment
)

// elf makes an ELF executable of one segment that is loaded at base.
func elf(machine uint16, code []byte, gofer, kernel uint64, path string) ([]byte, error) {
	if len(path) >= maxPath || len(code) == 0 {
		return nil, fmt.Errorf("prestart: %d bytes of code and the path %q do not fit", len(code), path)
	}
	size := uint64(codeAt-base) + uint64(len(code))
	var b bytes.Buffer
	write := func(fields ...any) {
		for _, f := range fields {
			_ = binary.Write(&b, binary.LittleEndian, f) // a buffer takes everything
		}
	}
	// elf(5): 64 bit, little endian, version 1, System V; an executable file.
	write([16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, uint16(2), machine, uint32(1),
		uint64(codeAt), uint64(64), uint64(0), uint32(0), uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0))
	// One segment to load, readable and executable.
	write(uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000))
	b.Write(make([]byte, goferAt-base-headerSize))
	write(gofer, kernel)
	b.WriteString(path)
	b.Write(make([]byte, codeAt-base-b.Len()))
	b.Write(code)
	return b.Bytes(), nil
}

// file is a file without a name that holds program and can be executed through
// /proc/self/fd. It cannot be changed any more.
func file(name string, program []byte) (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 all of them were executable
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("prestart: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(program); err != nil {
		f.Close()
		return nil, fmt.Errorf("prestart: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("prestart: sealing: %w", err)
	}
	return f, nil
}
