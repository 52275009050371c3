// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// A monitor in other hands may have cut its machine's disk, or made it longer: the next one
// is held to what the disk was made for.
func TestScratchOfAnotherLength(t *testing.T) {
	const begin, most = 1 << 20, math.MaxInt64
	whole := []boot.Part{{Offset: begin, Length: 4096}, {Offset: begin + 4096, Length: 8192}}
	for name, tt := range map[string]struct {
		size  int64
		parts []boot.Part
		fits  bool
	}{
		"as it was":          {begin + 12288, whole, true},
		"empty":              {0, whole, false},
		"cut":                {begin + 4096, whole, false},
		"longer":             {begin + 12289, whole, false},
		"no part":            {begin, []boot.Part{{Offset: begin}}, false},
		"less than none":     {0, []boot.Part{{Offset: begin, Length: -begin}}, false},
		"over another":       {begin + 4096, []boot.Part{{Offset: begin, Length: 4096}, {Offset: begin, Length: 4096}}, false},
		"farther than there": {0, []boot.Part{{Offset: begin, Length: most}}, false},
	} {
		dir := t.TempDir()
		disk := filepath.Join(dir, "disk")
		if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, tt.size)); err != nil {
			t.Fatal(err)
		}
		if _, err := microvm.PackDisk(filepath.Join(dir, "scratch"), disk); err != nil {
			t.Fatal(err)
		}
		longest, err := microvm.LongestFile(t.TempDir(), dir, tt.parts...)
		if (err == nil) != tt.fits || err != nil && !errors.Is(err, sandbox.ErrMisfit) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && longest != tt.size {
			t.Errorf("%s: a file may have %d bytes", name, longest)
		}
	}
}

// What has no bound of bytes has as many as its few files can have, on any host's disk.
func TestFewFilesWithoutABound(t *testing.T) {
	for _, files := range []int64{1, 16, 1000} {
		if n, err := microvm.Divide(t.TempDir(), 0, files); err != nil || n < 64<<20 {
			t.Errorf("%d files: %d bytes, %v", files, n, err)
		}
	}
	if _, err := microvm.Divide(t.TempDir(), 1<<40, 16); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a bound is held: %v", err)
	}
}
