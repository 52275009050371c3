// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// A disk is packed to what is on it, and is the same again.
func TestPackedDisk(t *testing.T) {
	dir := t.TempDir()
	disk, packed, again := filepath.Join(dir, "disk"), filepath.Join(dir, "packed"), filepath.Join(dir, "again")
	const size = 1 << 40
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pieces := map[int64]string{0: "first", 1<<30 + 5: "middle", size - 4: "last"}
	for at, piece := range pieces {
		if _, err := f.WriteAt([]byte(piece), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := microvm.PackDisk(packed, disk); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(packed)
	if err != nil || info.Size() > 1<<20 || info.Mode() != 0o600 {
		t.Errorf("packed: %+v, %v", info, err)
	}
	out, err := os.Create(again)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := microvm.UnpackDisk(out, packed); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(out.Fd()), &st); err != nil || st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("it is %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
	for at, piece := range pieces {
		got := make([]byte, len(piece))
		if _, err := out.ReadAt(got, at); err != nil || string(got) != piece {
			t.Errorf("at %d: %q, %v", at, got, err)
		}
	}
	if _, err := microvm.PackDisk(packed, disk); !errors.Is(err, os.ErrExist) {
		t.Errorf("over another one: %v", err)
	}
}

// What was not packed so is refused: it may have been cut by a full disk, or changed.
func TestPackedDiskRefused(t *testing.T) {
	extents := func(all ...int64) []byte {
		var b bytes.Buffer
		if err := binary.Write(&b, binary.BigEndian, all); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, packed := range map[string][]byte{
		"empty":              nil,
		"cut in an extent":   extents(0, 8)[:12],
		"cut in a piece":     append(extents(0, 8), "1234"...),
		"without an end":     append(extents(0, 4), "1234"...),
		"backwards":          append(append(extents(8, 4), "1234"...), extents(0, 0)...),
		"before its begin":   extents(-1, 0),
		"less than nothing":  extents(0, -1),
		"farther than there": extents(1<<62, 1<<62),
	} {
		dir := t.TempDir()
		from := filepath.Join(dir, "packed")
		out, err := os.Create(filepath.Join(dir, "out"))
		if err = errors.Join(err, os.WriteFile(from, packed, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := microvm.UnpackDisk(out, from); !errors.Is(err, sandbox.ErrMisfit) {
			t.Errorf("%s: %v", name, err)
		}
		out.Close()
	}
}

// A snapshot of which something is missing or was cut does not fit; it is not the caller's
// fault.
func TestDamagedSnapshot(t *testing.T) {
	const told = `{"files": true, "packed": {"scratch": 3}}`
	for name, tt := range map[string]struct {
		told, scratch string
		fits          bool
	}{
		"as it was": {told, "abc", true}, "cut": {told, "ab", false}, "missing": {told, "", false}, "nonsense": {"]", "abc", false}, "nothing": {"", "", false},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"machine.json": tt.told, "scratch": tt.scratch} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := microvm.ReadWritten(dir)
		if (err == nil) != tt.fits || err != nil && (!errors.Is(err, sandbox.ErrMisfit) || !errors.Is(err, sandbox.ErrUnavailable)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
