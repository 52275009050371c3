// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A test that waits for the pipe hangs.
func TestReadBelow(t *testing.T) {
	name := t.TempDir()
	if err := os.WriteFile(filepath.Join(name, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(name, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := readBelow(dir, "file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	for _, other := range []string{"pipe", ".", "none"} {
		if f, err := readBelow(dir, other); err == nil {
			f.Close()
			t.Errorf("%s is opened", other)
		}
	}
}
