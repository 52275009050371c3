// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The layer over a root is told as root made it; that over a mount without what its owner
// may not read.
func TestWriteRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	dir := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "closed"), []byte("mine"), 0o600), os.Chown(filepath.Join(dir, "closed"), 7, 8),
		os.Chtimes(filepath.Join(dir, "closed"), time.Unix(1, 0), time.Unix(1000000000, 0)),
		unix.Mknod(filepath.Join(dir, "removed"), unix.S_IFCHR, 0),
		os.MkdirAll(filepath.Join(dir, "var/covered/below"), 0o755), os.Mkdir(filepath.Join(dir, "covered"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var root, mount bytes.Buffer
	if err := errors.Join(
		WriteRoot(t.Context(), f, TrustedMarks, func(name string) bool { return name == "var/covered" }, &root),
		WriteUpper(t.Context(), f, TrustedMarks, &mount),
	); err != nil {
		t.Fatal(err)
	}
	got := entries(t, &root)
	if h := got["closed"]; h == nil || h.Typeflag != tar.TypeReg || h.Size != 4 || h.Uid != 7 || h.Gid != 8 || h.ModTime.Unix() != 1000000000 {
		t.Errorf("closed: %+v", h)
	}
	if h := got["removed"]; h == nil || h.Typeflag != tar.TypeChar || h.Devmajor != 0 || h.Devminor != 0 {
		t.Errorf("removed: %+v", h)
	}
	if len(got) != 4 || got["var/"] == nil || got["covered/"] == nil {
		t.Errorf("it has %v", got)
	}
	got = entries(t, &mount)
	if h := got["closed"]; h == nil || h.Typeflag != tar.TypeFifo || h.Uid != 0 || len(got) != 6 {
		t.Errorf("over a mount: %+v, %v", h, got)
	}
}

func entries(t *testing.T, r io.Reader) map[string]*tar.Header {
	t.Helper()
	all := map[string]*tar.Header{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = h
	}
}
