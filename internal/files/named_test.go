// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// byFD is the name of something that the caller has open.
func byFD(f *os.File) string { return fmt.Sprintf("/dev/fd/%d", f.Fd()) }

// TestRead: whatever is named is read, or said why not, and nothing is waited for.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	io.WriteString(w, "a pipe")
	w.Close()
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	for _, tt := range []struct{ path, want, why string }{
		{path: file, want: "a file"},
		{path: byFD(r), want: "a pipe"},
		{path: os.DevNull},
		{path: fifo(t), why: "it is a pipe, and no process writes to it"},
		{path: "/dev/zero", why: "it is no file"},
		{path: filepath.Dir(file), why: "it is no file"},
		{path: byFD(zero), why: "it has more than 6 bytes"},
		{path: file + "s", why: "no such file"},
	} {
		got, err := Read(tt.path, 6)
		var pathError *fs.PathError
		if tt.why == "" && err != nil || tt.why != "" && (!errors.As(err, &pathError) || !strings.Contains(err.Error(), tt.why)) || string(got) != tt.want {
			t.Errorf("%s: %q, %v", tt.path, got, err)
		}
	}
	if got, err := Read(file, 5); err == nil {
		t.Errorf("%q is longer than 5 bytes", got)
	}
}

// TestPipeWithWriter: one that has a writer is read to the end.
func TestPipeWithWriter(t *testing.T) {
	name := fifo(t)
	w, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "A=b")
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w.Close()
	if got, err := io.ReadAll(f); string(got) != "A=b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestReadRegular: a regular file is read, and nothing else.
func TestReadRegular(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadRegular(file, 6); string(got) != "a file" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{fifo(t), os.DevNull, "/dev/zero", filepath.Dir(file)} {
		if _, err := ReadRegular(name, 6); !errors.Is(err, errNoFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := ReadRegular(file, 5); err == nil {
		t.Errorf("%q is longer than 5 bytes", got)
	}
}
