// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

const (
	// maxFile is how large a kernel's file may be, and maxKernel the kernel in it.
	maxFile   = 256 << 20
	maxKernel = 512 << 20
)

var errNoKernel = errors.New("it is no Linux kernel that can be booted")

// Extract returns the kernel in file as an ELF image, and its version
// ("6.1.0-48-cloud-amd64"). file is such an image, or x86's bzImage, whose payload is
// compressed with gzip, bzip2, xz, lzma, lz4 or zstd (Documentation/arch/x86/boot.rst). A kernel
// for another architecture than ours is refused.
func Extract(file []byte) (image []byte, version string, err error) {
	image = file
	if !bytes.HasPrefix(file, []byte(elf.ELFMAG)) {
		if image, err = payload(file); err != nil {
			return nil, "", err
		}
	}
	if err := check(image); err != nil {
		return nil, "", err
	}
	if version = versionOf(image); version == "" {
		return nil, "", fmt.Errorf("%w: it does not say its version", errNoKernel)
	}
	return image, version, nil
}

// The setup header of a bzImage.
const (
	offSectors = 0x1f1
	offMagic   = 0x202
	offPayload = 0x248
	offLength  = 0x24c
	headerSize = 0x250
)

// payload unpacks what a bzImage carries.
func payload(file []byte) ([]byte, error) {
	if len(file) < headerSize || string(file[offMagic:offMagic+4]) != "HdrS" {
		return nil, errNoKernel
	}
	sectors := int64(file[offSectors])
	if sectors == 0 {
		sectors = 4
	}
	from := (sectors+1)*512 + int64(binary.LittleEndian.Uint32(file[offPayload:]))
	n := int64(binary.LittleEndian.Uint32(file[offLength:]))
	if n < 8 || from+n > int64(len(file)) {
		return nil, fmt.Errorf("%w: its file is cut off", errNoKernel)
	}
	packed := file[from : from+n]
	r, err := unpacker(packed)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = io.Copy(&out, io.LimitReader(r, maxKernel+1))
	switch {
	case out.Len() > maxKernel:
		return nil, fmt.Errorf("%w: unpacked it is larger than %d MiB", errNoKernel, maxKernel>>20)
	case err != nil && !bytes.HasPrefix(out.Bytes(), []byte(elf.ELFMAG)):
		return nil, fmt.Errorf("%w: it cannot be unpacked: %v", errNoKernel, err)
	case err != nil && out.Len() != size(packed):
		return nil, fmt.Errorf("%w: its file is damaged: %v", errNoKernel, err)
	}
	return out.Bytes(), nil
}

// size is how large a payload is unpacked: the build appends that to all but gzip's,
// which ends with it by itself.
func size(packed []byte) int { return int(binary.LittleEndian.Uint32(packed[len(packed)-4:])) }

func unpacker(b []byte) (io.Reader, error) {
	r, cut := bytes.NewReader(b), bytes.NewReader(b[:len(b)-4])
	switch {
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.HasPrefix(b, []byte("BZh")):
		return bzip2.NewReader(cut), nil
	case bytes.HasPrefix(b, []byte("\xfd7zXZ\x00")):
		return xz.NewReader(cut)
	case bytes.HasPrefix(b, []byte{0x5d, 0, 0}):
		return lzma.NewReader(cut)
	case bytes.HasPrefix(b, []byte{0x02, 0x21, 0x4c, 0x18}):
		return lz4.NewReader(cut), nil
	case bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstd.NewReader(cut, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
	}
	return nil, fmt.Errorf("%w: it is packed in an unknown way", errNoKernel)
}

// check refuses an ELF image that is none of this machine's kernels.
func check(image []byte) error {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("%w: %v", errNoKernel, err)
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	switch {
	case f.Machine != want:
		return fmt.Errorf("%w: it is for another machine (%v)", errNoKernel, f.Machine)
	case f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN:
		return fmt.Errorf("%w: it is an object file", errNoKernel)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Filesz > uint64(len(image)) || p.Off > uint64(len(image))-p.Filesz {
			return fmt.Errorf("%w: its file is cut off", errNoKernel)
		}
	}
	return nil
}

// banner is how every kernel begins its log.
var banner = regexp.MustCompile(`Linux version ([0-9][0-9A-Za-z.+~_-]{0,63}) `)

func versionOf(image []byte) string {
	if m := banner.FindSubmatch(image); m != nil {
		return string(m[1])
	}
	return ""
}
