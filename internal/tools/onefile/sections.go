// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// section is a part of the file that has no section in the first program.
type section struct {
	name   string
	header elf.Section64
}

// sectionsOf are those of the entry and of the second program's segments. Nothing that
// runs reads them. But who writes the file anew, as strip and objcopy do, and with them
// the builders of most packages, takes what is in sections and leaves out all else, even
// where there was nothing to strip: each run would end in the middle of nothing.
func sectionsOf(code []byte, at uint64, lean []elf.Prog64) []section {
	out := []section{{".entry", elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR),
		Addr: at, Off: entryAt, Size: uint64(len(code)), Addralign: 1}}}
	for i, s := range lean {
		flags := elf.SHF_ALLOC
		if elf.ProgFlag(s.Flags)&elf.PF_X != 0 {
			flags |= elf.SHF_EXECINSTR
		}
		if elf.ProgFlag(s.Flags)&elf.PF_W != 0 {
			flags |= elf.SHF_WRITE
		}
		h := elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(flags), Addr: s.Vaddr, Off: s.Off, Size: s.Filesz, Addralign: 1}
		out = append(out, section{fmt.Sprintf(".run%d", i), h})
		if s.Memsz > s.Filesz {
			h.Type, h.Addr, h.Off, h.Size = uint32(elf.SHT_NOBITS), s.Vaddr+s.Filesz, s.Off+s.Filesz, s.Memsz-s.Filesz
			out = append(out, section{fmt.Sprintf(".run%d.bss", i), h})
		}
	}
	return out
}

// withSections has the table of sections, and the names in it, at the end of a file.
func withSections(file []byte, h *elf.Header64, table []elf.Section64, more []section) []byte {
	names := &table[h.Shstrndx]
	text := bytes.Clone(file[names.Off:][:names.Size])
	for _, s := range more {
		s.header.Name = uint32(len(text))
		text = append(append(text, s.name...), 0)
		table = append(table, s.header)
	}
	names = &table[h.Shstrndx]
	names.Off, names.Size = uint64(len(file)), uint64(len(text))
	file = append(file, text...)
	file = append(file, make([]byte, -len(file)&7)...)
	h.Shoff, h.Shnum = uint64(len(file)), uint16(len(table))
	var b bytes.Buffer
	_ = binary.Write(&b, le, table)
	return append(file, b.Bytes()...)
}
