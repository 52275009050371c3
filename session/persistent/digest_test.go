// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A digest is of what is in a file and where, and not of how it lies on the disk.
func TestDigest(t *testing.T) {
	const size = 8*digestBlock + 100
	write := func(fill func(f *os.File) error) string {
		t.Helper()
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "disk"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := fill(f); err != nil {
			t.Fatal(err)
		}
		got, err := (&digest{blocks: true}).of(dir)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	at := func(off int64, end int64) func(f *os.File) error {
		return func(f *os.File) error {
			if _, err := f.WriteAt([]byte("data"), off); err != nil {
				return err
			}
			return f.Truncate(end)
		}
	}
	dense := func(f *os.File) error {
		b := make([]byte, size)
		copy(b[3*digestBlock+5:], "data")
		_, err := f.Write(b)
		return err
	}
	want := write(dense)
	if got := write(at(3*digestBlock+5, size)); got != want {
		t.Errorf("with holes it is %s, without %s", got, want)
	}
	for name, fill := range map[string]func(f *os.File) error{
		"another place":         at(4*digestBlock+5, size),
		"another byte in place": at(3*digestBlock+6, size),
		"a byte longer":         at(3*digestBlock+5, size+1),
		"cut":                   at(3*digestBlock+5, size-1),
		"empty":                 func(f *os.File) error { return f.Truncate(size) },
		"its last byte": func(f *os.File) error {
			if err := dense(f); err != nil {
				return err
			}
			_, err := f.WriteAt([]byte{1}, size-1)
			return err
		},
	} {
		if write(fill) == want {
			t.Errorf("%s: it is taken for the same", name)
		}
	}
	// Its holes take no time: this one would take a quarter of an hour.
	if a, b := write(at(1<<40, 1<<40+4)), write(at(1<<39, 1<<40+4)); a == b {
		t.Error("where data is in a large file does not count")
	}
}

// What versions before wrote down is still what it was.
func TestDigestOfAllBytes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "memory"), bytes.Repeat([]byte{0, 1}, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (&digest{}).of(dir)
	if want := "2c7db7bbe6668024d2b019fdbb1116548c9de8eba10cdb300d7a9a237ed6e6cb"; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
