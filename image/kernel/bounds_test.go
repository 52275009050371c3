// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// sized appends how large a payload is unpacked.
func sized(b []byte, size uint32) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), size)
}

// xzBlock is the header of an xz block whose window has a code.
func xzBlock(code byte) []byte {
	b := []byte{2, 0, 0x21, 1, code, 0, 0, 0}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// xzHead begins an xz stream without checks.
func xzHead() []byte {
	return binary.LittleEndian.AppendUint32([]byte("\xfd7zXZ\x00\x00\x00"), crc32.ChecksumIEEE([]byte{0, 0}))
}

// No header makes us have more memory than a kernel's own: the window that a format asks for,
// and the size that a payload says it has.
func TestExtractBoundsMemory(t *testing.T) {
	image := vmlinux(ours(), elf.ET_EXEC, said)
	pack := func(name string) []byte { return packed(t, image, packers()[name], false) }
	lz := pack("lzma")
	copy(lz[1:], []byte{0, 0, 0xff, 0xff})
	raw := append([]byte{1 | 4<<3, 0, 0}, "data"...) // the last block of a zstd frame, as it is
	manyBlocks := xzHead()
	for range maxBlocks + 1 {
		manyBlocks = append(append(manyBlocks, xzBlock(0)...), 0, 0, 0, 0)
	}
	for name, tt := range map[string]struct {
		payload []byte
		want    string
	}{
		"xz, a window of 4 GiB":             {sized(append(xzHead(), xzBlock(40)...), 5000), "it wants 4095 MiB of memory"},
		"xz, a window of 192 MiB":           {sized(append(xzHead(), xzBlock(31)...), 5000), "it wants 192 MiB of memory"},
		"xz, many blocks":                   {sized(manyBlocks, 5000), "blocks"},
		"lzma, a window of 4 GiB":           {sized(lz, 5000), "it wants 4095 MiB of memory"},
		"zstd, a window of 4 GiB":           {sized(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 22 << 3}, raw...), 4), "window size"},
		"zstd, a frame of 4 GiB":            {sized(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 1, 0, 0, 0}, raw...), 4), "exceeds"},
		"gzip, 4 GiB unpacked":              {append(pack("gzip")[:len(pack("gzip"))-4], 0xff, 0xff, 0xff, 0xff), "larger than 512 MiB"},
		"lz4, 4 GiB unpacked":               {sized(pack("lz4"), 1<<32-1), "larger than 512 MiB"},
		"lz4, 512 MiB unpacked, of nothing": {sized(pack("lz4"), maxKernel), "damaged"},
		"zstd, more than it says":           {sized(pack("zstd"), 1000), "damaged"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := Extract(bzImage(tt.payload))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
			t.Errorf("%s: it took %d MiB", name, got>>20)
		}
	}
}

// A kernel's own window is one that is taken.
func TestExtractTakesWideWindows(t *testing.T) {
	for _, code := range []byte{28, 30} { // 64 and 128 MiB
		x, err := newUnxz(append(append(xzHead(), xzBlock(code)...), 1, 0, 3, 't', 'e', 'x', 't', 0))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4)
		if n, err := x.Read(b); n != 4 || string(b) != "text" {
			t.Errorf("%d: %q, %v", code, b[:n], err)
		}
	}
}

// Modules, and the list of them, are bounded as the kernel is.
func TestGatherIsBounded(t *testing.T) {
	dir := cloud(t)
	deps := []string{"kernel/b/virtio_blk.ko:"}
	for i := range 5 {
		name := "kernel/big/m" + string(rune('0'+i)) + ".ko"
		holes(t, dir, name, maxModule)
		deps = append(deps, name)
	}
	tree(t, dir, map[string]string{"modules.dep": "kernel/v/virtio_mmio.ko:\n" + strings.Join(deps, " ") + "\nkernel/f/erofs.ko:\n" + strings.Join(deps[1:], ":\n") + ":\n"})
	if _, _, err := gather(dir); err == nil || !strings.Contains(err.Error(), "larger than 256 MiB together") {
		t.Errorf("%v", err)
	}
	holes(t, dir, "kernel/v/virtio_mmio.ko", maxModule+1)
	if _, _, err := gather(dir); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("%v", err)
	}
	tree(t, dir, map[string]string{"m.ko.xz": string(append(xzHead(), xzBlock(40)...))})
	if _, err := readModule(filepath.Join(dir, "m.ko.xz")); err == nil || !strings.Contains(err.Error(), "of memory") {
		t.Errorf("%v", err)
	}
}

// holes makes a file of a size that takes no room.
func holes(t *testing.T, dir, name string, size int64) {
	t.Helper()
	tree(t, dir, map[string]string{name: ""})
	if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
		t.Fatal(err)
	}
}
