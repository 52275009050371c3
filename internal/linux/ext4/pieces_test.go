// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ext4_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/ext4"
)

// What a file may have: all bytes where it lies in one piece. In more than four pieces it has
// a block less, which says where they are; never more than the bound.
func TestPieces(t *testing.T) {
	const size, block = 4 * mib, ext4.Block
	disk, at := format(t, ext4.Options{Size: size, Inodes: 50, Mode: 0o755}).Name(), t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", disk, at).CombinedOutput(); err != nil {
		t.Skipf("needs a loop device to mount a file by: %v: %s", err, out)
	}
	defer func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	}()
	for name, tt := range map[string]struct {
		order []int64 // of the first blocks that are written
		want  int64
	}{"one": {nil, size / block}, "many": {[]int64{990, 3, 800, 1, 600, 5, 400, 7, 200, 9}, size/block - 1}} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Create(filepath.Join(at, name))
			if err != nil {
				t.Fatal(err)
			}
			defer os.Remove(file.Name())
			defer file.Close()
			b := make([]byte, block)
			for _, n := range tt.order { // each lies on the disk before the next
				if _, err := file.WriteAt(b, n*block); err != nil {
					t.Fatal(err)
				}
				if err := file.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			err = nil
			for n := int64(0); err == nil && n < 2*size/block; n++ {
				_, err = file.WriteAt(b, n*block)
			}
			if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("it is not full: %v", err)
			}
			_ = file.Sync()
			var st unix.Stat_t
			if err := unix.Fstat(int(file.Fd()), &st); err != nil {
				t.Fatal(err)
			}
			info, err := file.Stat()
			if err != nil || info.Size()/block != tt.want {
				t.Errorf("%d blocks of data, want %d; it takes %d, %v", info.Size()/block, tt.want, st.Blocks*512/block, err)
			}
		})
	}
}
