// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
)

// along is what the kernel executes along with a program: the loader that an ELF file names, or a
// script's interpreter, with its argument; elf says which. A file that cannot be read, or is
// neither, has none. Its content is untrusted.
func (e *executables) along(f File) (words []string, elf bool, err error) {
	if f.node != nil {
		return alongside(io.NewSectionReader(e.view.spec.Root.Image.EROFS, f.node.Offset, f.node.Size))
	}
	in, err := Reopen(f.Handle)
	if errors.Is(err, fs.ErrPermission) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	return alongside(in)
}

func alongside(in io.ReaderAt) (words []string, elf bool, err error) {
	head := make([]byte, 4096)
	n, err := in.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	head = head[:n]
	if words, ok := shebangWords(head); ok {
		return words, false, nil
	}
	if loader := loaderOf(head, in); path.IsAbs(loader) {
		return []string{loader}, true, nil
	}
	return nil, isELF(head), nil
}

func shebangWords(head []byte) ([]string, bool) {
	line, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return nil, false
	}
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	return strings.Fields(string(line[:min(len(line), 255)])), true
}

// loaderOf reads the name of an ELF file's loader (PT_INTERP); empty when there is
// none.
func loaderOf(head []byte, in io.ReaderAt) string {
	if len(head) < 64 || !isELF(head) || head[4] != 2 || head[5] != 1 { // 64 bits, little-endian: amd64 and arm64
		return ""
	}
	le := binary.LittleEndian
	offset, size, count := le.Uint64(head[32:]), int(le.Uint16(head[54:])), int(le.Uint16(head[56:]))
	if size < 56 || size*count > 64<<10 || offset > 1<<40 {
		return ""
	}
	table := make([]byte, size*count)
	if _, err := in.ReadAt(table, int64(offset)); err != nil {
		return ""
	}
	for ; len(table) >= size; table = table[size:] {
		if le.Uint32(table) != 3 { // PT_INTERP
			continue
		}
		at, length := le.Uint64(table[8:]), le.Uint64(table[32:])
		if at > 1<<40 || length > 4096 {
			return ""
		}
		name := make([]byte, length)
		if _, err := in.ReadAt(name, int64(at)); err != nil {
			return ""
		}
		return strings.TrimRight(string(name), "\x00")
	}
	return ""
}

// isELF says whether code is a program of this platform's format.
func isELF(code []byte) bool { return bytes.HasPrefix(code, []byte(elf.ELFMAG)) }
