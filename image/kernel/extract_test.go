// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// vmlinux is an ELF image that says what a kernel says.
func vmlinux(machine elf.Machine, kind elf.Type, says string) []byte {
	var b bytes.Buffer
	head := elf.Header64{Type: uint16(kind), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	text := strings.Repeat("\x90", 5000) + says
	_ = binary.Write(&b, binary.LittleEndian, head)
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 120, Filesz: uint64(len(text)), Memsz: uint64(len(text))})
	b.WriteString(text)
	return b.Bytes()
}

func ours() elf.Machine {
	if runtime.GOARCH == "arm64" {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}

const said = "Linux version 6.1.0-48-cloud-amd64 (debian) #1 SMP"

// bzImage packs a payload as the kernel's build does.
func bzImage(payload []byte) []byte {
	b := make([]byte, 3*512)
	b[offSectors] = 2
	copy(b[offMagic:], "HdrS")
	binary.LittleEndian.PutUint32(b[offPayload:], 0)
	binary.LittleEndian.PutUint32(b[offLength:], uint32(len(payload)))
	return append(b, payload...)
}

func packed(t testing.TB, image []byte, pack func(io.Writer) io.WriteCloser, sized bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pack(&b)
	if _, err := w.Write(image); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if sized {
		_ = binary.Write(&b, binary.LittleEndian, uint32(len(image)))
	}
	return b.Bytes()
}

func must[T io.WriteCloser](w T, err error) io.WriteCloser {
	if err != nil {
		panic(err)
	}
	return w
}

func packers() map[string]func(io.Writer) io.WriteCloser {
	return map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"lz4": func(w io.Writer) io.WriteCloser {
			z := lz4.NewWriter(w)
			_ = z.Apply(lz4.LegacyOption(true))
			return z
		},
		"xz":   func(w io.Writer) io.WriteCloser { return must(xz.NewWriter(w)) },
		"lzma": func(w io.Writer) io.WriteCloser { return must(lzma.NewWriter(w)) },
		"zstd": func(w io.Writer) io.WriteCloser { return must(zstd.NewWriter(w)) },
	}
}

func TestExtract(t *testing.T) {
	image := vmlinux(ours(), elf.ET_EXEC, said)
	files := map[string][]byte{"an ELF image": image}
	for name, pack := range packers() {
		files[name] = bzImage(packed(t, image, pack, name != "gzip"))
	}
	for name, file := range files {
		got, version, err := Extract(file)
		if err != nil || version != "6.1.0-48-cloud-amd64" || !bytes.Equal(got, image) {
			t.Errorf("%s: %d bytes of %d, %q, %v", name, len(got), len(image), version, err)
		}
	}
}

func TestExtractRefuses(t *testing.T) {
	image := vmlinux(ours(), elf.ET_EXEC, said)
	lz := packed(t, image, packers()["lz4"], true)
	whole := bzImage(lz)
	damaged := bytes.Clone(bzImage(packed(t, image, packers()["gzip"], false)))
	damaged[len(damaged)-3] ^= 1
	other := elf.EM_AARCH64
	if ours() == other {
		other = elf.EM_X86_64
	}
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"nothing":             {nil, "no Linux kernel"},
		"text":                {[]byte("#!/bin/sh\n"), "no Linux kernel"},
		"another machine":     {vmlinux(other, elf.ET_EXEC, said), "another machine"},
		"an object file":      {vmlinux(ours(), elf.ET_REL, said), "object file"},
		"a program":           {vmlinux(ours(), elf.ET_EXEC, "hello"), "version"},
		"an ELF cut off":      {image[:len(image)-100], "cut off"},
		"an ELF head":         {image[:70], "no Linux kernel"},
		"a bzImage cut off":   {whole[:len(whole)-10], "cut off"},
		"a bzImage's head":    {whole[:700], "cut off"},
		"packed unknown":      {bzImage([]byte("0123456789abcdef")), "unknown way"},
		"packed in nothing":   {bzImage(nil), "cut off"},
		"damaged":             {damaged, "damaged"},
		"a payload elsewhere": {append(bytes.Clone(whole[:offPayload]), append([]byte{0xff, 0xff, 0xff, 0x7f}, whole[offPayload+4:]...)...), "cut off"},
	} {
		if _, _, err := Extract(tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func FuzzExtract(f *testing.F) {
	f.Add(bzImage(sized(append(xzHead(), xzBlock(40)...), 5000)))
	image := vmlinux(ours(), elf.ET_EXEC, said)
	f.Add(image)
	for name, pack := range packers() {
		f.Add(bzImage(packed(f, image, pack, name != "gzip")))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		got, version, err := Extract(file)
		if err == nil && (version == "" || !bytes.HasPrefix(got, []byte(elf.ELFMAG))) {
			t.Fatalf("%q from %d bytes", version, len(file))
		}
	})
}
