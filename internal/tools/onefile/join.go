// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// large is what the second program's place in the file is a multiple of, in bytes, so
// that the kernel can map pieces of it by one entry of a page table each, as of the first.
const large = 2 << 20

var le = binary.LittleEndian

// program is one that is to be joined.
type program struct {
	bytes  []byte
	header elf.Header64
	progs  []elf.Prog64
}

// Sizes in a file of 64 bits.
const (
	headerSize  = int(unsafe.Sizeof(elf.Header64{}))
	progSize    = int(unsafe.Sizeof(elf.Prog64{}))
	sectionSize = int(unsafe.Sizeof(elf.Section64{}))
)

// parse reads a static program at a fixed address, as Go's linker makes them.
func parse(b []byte) (*program, error) {
	p := &program{bytes: b}
	if err := binary.Read(bytes.NewReader(b), le, &p.header); err != nil {
		return nil, err
	}
	h := &p.header
	switch {
	case !bytes.HasPrefix(b, []byte(elf.ELFMAG)) || h.Ident[elf.EI_CLASS] != byte(elf.ELFCLASS64) || h.Ident[elf.EI_DATA] != byte(elf.ELFDATA2LSB):
		return nil, errors.New("it is no program of 64 bits")
	case elf.Type(h.Type) != elf.ET_EXEC:
		return nil, errors.New("it has no fixed address")
	case int(h.Phentsize) != progSize || int(h.Shentsize) != sectionSize || h.Phoff != uint64(headerSize):
		return nil, errors.New("its tables are not where Go's linker puts them")
	}
	p.progs = make([]elf.Prog64, h.Phnum)
	if err := binary.Read(bytes.NewReader(b[headerSize:]), le, p.progs); err != nil {
		return nil, err
	}
	for _, s := range p.progs {
		switch t := elf.ProgType(s.Type); t {
		case elf.PT_INTERP, elf.PT_DYNAMIC, elf.PT_TLS:
			return nil, fmt.Errorf("it has a segment %v: it is not a static program of Go's", t)
		case elf.PT_LOAD:
			if s.Off+s.Filesz > uint64(len(b)) {
				return nil, errors.New("it is cut off")
			}
		}
	}
	return p, nil
}

// loads are its segments in memory.
func (p *program) loads() (out []elf.Prog64) {
	for _, s := range p.progs {
		if elf.ProgType(s.Type) == elf.PT_LOAD {
			out = append(out, s)
		}
	}
	return out
}

// join makes one file of two programs.
func join(whole, lean []byte) ([]byte, error) {
	w, err := parse(whole)
	if err != nil {
		return nil, fmt.Errorf("the first program: %w", err)
	}
	l, err := parse(lean)
	if err != nil {
		return nil, fmt.Errorf("the second program: %w", err)
	}
	if w.header.Machine != l.header.Machine {
		return nil, errors.New("the programs are for different processors")
	}
	if err := apart(w.loads(), l.loads()); err != nil {
		return nil, err
	}
	first := w.loads()[0]
	if first.Off != 0 || elf.ProgFlag(first.Flags)&elf.PF_X == 0 {
		return nil, errors.New("the first program's header is not with its code")
	}

	// The sections' table stands behind the segments', which grows: it moves to the end.
	out := bytes.Clone(whole)
	table := make([]elf.Section64, w.header.Shnum)
	if err := binary.Read(bytes.NewReader(out[w.header.Shoff:]), le, table); err != nil {
		return nil, err
	}
	clear(out[w.header.Shoff:][:len(table)*sectionSize])
	at := uint64(len(out)+large-1) / large * large
	out = append(out, make([]byte, at-uint64(len(out)))...)
	out = append(out, lean...)
	header, progs := w.header, w.progs
	second := l.loads()
	for i := range second {
		second[i].Off += at
	}
	progs = append(progs, second...)
	header.Phnum = uint16(len(progs))
	for i := range progs {
		if elf.ProgType(progs[i].Type) == elf.PT_PHDR {
			progs[i].Filesz, progs[i].Memsz = uint64(len(progs)*progSize), uint64(len(progs)*progSize)
		}
	}

	code, err := entry(elf.Machine(header.Machine), first.Vaddr+entryAt, w.header.Entry, l.header.Entry)
	if err != nil {
		return nil, err
	}
	header.Entry = first.Vaddr + entryAt
	out = withSections(out, &header, table, sectionsOf(code, header.Entry, second))
	var head bytes.Buffer
	_ = binary.Write(&head, le, header)
	_ = binary.Write(&head, le, progs)
	if head.Len() > entryAt {
		return nil, errors.New("there are too many segments")
	}
	if used := bytes.Trim(out[headerSize+len(w.progs)*progSize:entryAt+len(code)], "\x00"); len(used) > 0 {
		return nil, errors.New("the first program has something where the entry is to be")
	}
	copy(out, head.Bytes())
	copy(out[entryAt:], code)
	return out, nil
}

// entryAt is where in the file, and from the first program's first address on, the entry
// stands: in the page of the header, of which Go's linker leaves most free.
const entryAt = 0x400

// apart refuses segments that do not lie one behind another: the kernel takes them in
// the order of their addresses, and so does the second program's last one end what the
// process's data begins behind.
func apart(whole, lean []elf.Prog64) error {
	if len(whole) == 0 || len(lean) == 0 {
		return errors.New("a program without a segment")
	}
	all := append(append([]elf.Prog64{}, whole...), lean...)
	for i := 1; i < len(all); i++ {
		const page = 64 << 10
		if end := (all[i-1].Vaddr + all[i-1].Memsz + page - 1) &^ (page - 1); all[i].Vaddr < end && i == len(whole) {
			return fmt.Errorf("the second program begins at %#x, and the first ends at %#x: link it elsewhere (-T)", all[i].Vaddr, end)
		}
		if all[i].Vaddr < all[i-1].Vaddr+all[i-1].Memsz {
			return errors.New("a program's segments are not in order")
		}
	}
	if lean[0].Vaddr%large != 0 || lean[0].Off != 0 {
		return fmt.Errorf("the second program begins at %#x, which is no multiple of %#x", lean[0].Vaddr, large)
	}
	return nil
}
