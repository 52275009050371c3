// SPDX-License-Identifier: Apache-2.0

package ext4_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/ext4"
	"github.com/caisson-run/caisson/sandbox"
)

// tool is a program of e2fsprogs, which make test installs.
func tool(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if p, err := exec.LookPath(dir + name); err == nil {
			return p
		}
	}
	t.Skipf("needs %s (apt-get install e2fsprogs)", name)
	return ""
}

func format(t *testing.T, o ext4.Options) *os.File {
	t.Helper()
	length, err := o.Length()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := errors.Join(f.Truncate(length), ext4.Format(f, o)); err != nil {
		t.Fatal(err)
	}
	return f
}

const mib, gib = 1 << 20, 1 << 30

var sizes = []struct {
	name         string
	size, inodes int64
}{
	{"nothing", 0, 1},
	{"one block", ext4.Block, 1},
	{"one byte less than two blocks", 2*ext4.Block - 1, 7},
	{"a megabyte", mib, 300},
	{"sixteen megabytes with many files", 16 * mib, 128 << 10},
	{"nearly a group", 127 * mib, 32768 - 10},
	{"a group", 128 * mib, 32768},
	{"just more than a group", 128*mib + 2*ext4.Block, 1000},
	{"the usual", 512 * mib, 128 << 10},
	{"few files", 512 * mib, 100},
	{"a file for each block", gib, gib / 4096},
	{"an odd size", 3*gib + 12345678, 77777},
	{"ten gigabytes", 10 * gib, 128 << 10},
	{"sixty-four gigabytes", 64 * gib, 1 << 20},
	{"four terabytes", 4 << 40, 8 << 20},
}

// TestFormat has e2fsprogs judge: it finds no fault, and the sizes that were asked for.
func TestFormat(t *testing.T) {
	fsck, dump := tool(t, "e2fsck"), tool(t, "dumpe2fs")
	for _, c := range sizes {
		t.Run(c.name, func(t *testing.T) {
			if c.size > 64*gib && testing.Short() {
				t.Skip("its check takes a second")
			}
			f := format(t, ext4.Options{Size: c.size, Inodes: c.inodes, UUID: [16]byte{1, 2, 3, 15: 9}, Mode: 0o1777, UID: 100_000, GID: 70_001})
			if out, err := exec.Command(fsck, "-fn", f.Name()).CombinedOutput(); err != nil {
				t.Fatalf("e2fsck: %v\n%s", err, out)
			}
			out, err := exec.Command(dump, "-h", f.Name()).CombinedOutput()
			if err != nil {
				t.Fatalf("dumpe2fs: %v\n%s", err, out)
			}
			number := func(what string) int64 {
				m := regexp.MustCompile(`(?m)^` + what + `: +([0-9]+)$`).FindSubmatch(out)
				if m == nil {
					t.Fatalf("no %q in\n%s", what, out)
				}
				n, _ := strconv.ParseInt(string(m[1]), 10, 64)
				return n
			}
			held := min(number("Block count")/50, 4096)
			if got, want := number("Free blocks")-held, c.size/ext4.Block; got != want {
				t.Errorf("%d blocks for files, want %d", got, want)
			}
			if got := number("Free inodes"); got != c.inodes && (c.size < 100*gib || got > c.inodes || got < c.inodes*9/10) {
				t.Errorf("%d inodes for files, want %d", got, c.inodes)
			}
			if number("Reserved block count") != 0 {
				t.Error("there are blocks for root alone")
			}
		})
	}
}

// TestHoles: a file system takes next to nothing of the host's disk.
func TestHoles(t *testing.T) {
	f := format(t, ext4.Options{Size: 64 * gib, Inodes: 1 << 20, Mode: 0o755})
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if got := st.Blocks * 512; got > mib {
		t.Errorf("an empty file system of 64 GiB takes %d bytes", got)
	}
}

// TestFault: e2fsck sees a fault, so that its word above means something.
func TestFault(t *testing.T) {
	f := format(t, ext4.Options{Size: 8 * mib, Inodes: 100, Mode: 0o755})
	if _, err := f.WriteAt([]byte{0x55}, ext4.Block+12); err != nil { // of the table of groups: free blocks
		t.Fatal(err)
	}
	if out, err := exec.Command(tool(t, "e2fsck"), "-fn", f.Name()).CombinedOutput(); err == nil {
		t.Errorf("no fault found:\n%s", out)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		size, inodes int64
		want         error
	}{
		{-1, 10, sandbox.ErrInvalid}, {mib, 0, sandbox.ErrInvalid}, {mib, -1, sandbox.ErrInvalid}, {1 << 60, 10, sandbox.ErrInvalid}, {mib, 1 << 40, sandbox.ErrInvalid},
		{64 * gib, 100, sandbox.ErrUnsupported},
		{(134<<20 + 780_500) * ext4.Block, 1<<32 - 11, sandbox.ErrUnsupported}, // 1<<32 in whole groups
	} {
		o := ext4.Options{Size: c.size, Inodes: c.inodes}
		if _, err := o.Length(); !errors.Is(err, c.want) {
			t.Errorf("%d bytes, %d files: %v, want %v", c.size, c.inodes, err, c.want)
		}
	}
}
