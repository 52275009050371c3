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
	"github.com/ulikunitz/xz/lzma"
)

const (
	// maxFile is how large a kernel's file may be, and maxKernel the kernel in it, in bytes.
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
	return unpack(file[from : from+n])
}

// unpack unpacks a payload to the size that it says it has.
func unpack(packed []byte) ([]byte, error) {
	r, err := unpacker(packed)
	if err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(packed[len(packed)-4:]))
	if size > maxKernel {
		return nil, fmt.Errorf("%w: unpacked it is larger than %d MiB", errNoKernel, maxKernel>>20)
	}
	// It grows with what there is: a lie about the size costs no memory.
	out := make([]byte, min(size, usualRatio*int64(len(packed))))
	n, err := io.ReadFull(r, out)
	for err == nil && int64(len(out)) < size {
		out = append(out, make([]byte, min(size-int64(len(out)), 3*int64(len(out))))...)
		var more int
		more, err = io.ReadFull(r, out[n:])
		n += more
	}
	if err == nil {
		if n, end := io.ReadFull(r, make([]byte, 1)); n > 0 || end != io.EOF {
			err = errors.Join(end, errors.New("it does not end where it says"))
		}
	}
	switch {
	case err != nil && !bytes.HasPrefix(out, []byte(elf.ELFMAG)):
		return nil, fmt.Errorf("%w: it cannot be unpacked: %v", errNoKernel, err)
	case err != nil:
		return nil, fmt.Errorf("%w: its file is damaged: %v", errNoKernel, err)
	}
	return out, nil
}

// usualRatio is more than what kernels are compressed by.
const usualRatio = 8

// unpacker reads what is in a payload. Its last four bytes are how large that is; the build
// appends them to all but gzip's, which ends with them by itself. None of the formats has
// more than maxWindow in memory.
func unpacker(b []byte) (io.Reader, error) {
	cut := b[:len(b)-4]
	r := bytes.NewReader(cut)
	var z io.Reader
	var err error
	switch {
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}): // 32 KiB
		z, err = gzip.NewReader(bytes.NewReader(b))
	case bytes.HasPrefix(b, []byte("BZh")): // 900 kB
		z = bzip2.NewReader(r)
	case bytes.HasPrefix(b, []byte("\xfd7zXZ\x00")):
		z, err = newUnxz(cut)
	case bytes.HasPrefix(b, []byte{0x5d, 0, 0}):
		z, err = lzma.ReaderConfig{DictCap: maxWindow}.NewReader(r)
		var wide *lzma.ErrDictSize
		if errors.As(err, &wide) {
			err = tooWide(int64(wide.HeaderDictSize))
		}
	case bytes.HasPrefix(b, []byte{0x02, 0x21, 0x4c, 0x18}): // 8 MiB
		z = lz4.NewReader(r)
	case bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err = newUnzstd(r)
	default:
		return nil, fmt.Errorf("%w: it is packed in an unknown way", errNoKernel)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: it cannot be unpacked: %v", errNoKernel, err)
	}
	return z, nil
}

// newUnzstd unpacks zstd, with a window of at most maxWindow, also where a frame's is as long
// as what is in it.
func newUnzstd(r io.Reader) (io.Reader, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
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
