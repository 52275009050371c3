// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoadOrder(t *testing.T) {
	const dep = `kernel/fs/erofs/erofs.ko: kernel/lib/libcrc32c.ko
kernel/lib/libcrc32c.ko:
kernel/drivers/block/virtio_blk.ko.xz: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_ring.ko:
kernel/other.ko:
`
	got, err := loadOrder(strings.NewReader(dep), []string{"virtio_blk", "ext4", "erofs"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kernel/drivers/virtio/virtio_ring.ko", "kernel/drivers/virtio/virtio.ko", "kernel/drivers/block/virtio_blk.ko.xz",
		"kernel/lib/libcrc32c.ko", "kernel/fs/erofs/erofs.ko",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "no colon\n"} {
		if _, err := loadOrder(strings.NewReader(bad), nil); err == nil {
			t.Errorf("%q was taken for modules.dep", bad)
		}
	}
}

// cpio(1) itself reads the ramdisk back, where it is installed; the kernel does
// in every test-v2.
func TestCpioIsAligned(t *testing.T) {
	var buf bytes.Buffer
	c := cpioWriter{w: &buf}
	for _, name := range []string{"a", "ab", "abc", "abcd"} {
		c.add(name, 0o100644, []byte(name))
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	rest, names := buf.Bytes(), []string{}
	for off := 0; off < len(rest); {
		if off%4 != 0 || string(rest[off:off+6]) != "070701" {
			t.Fatalf("no header at %d", off)
		}
		size, nameLen := hex(t, rest[off+54:off+62]), hex(t, rest[off+94:off+102])
		names = append(names, string(rest[off+110:off+110+nameLen-1]))
		off += (110+nameLen+3)&^3 + (size+3)&^3
	}
	if d := cmp.Diff([]string{"a", "ab", "abc", "abcd", "TRAILER!!!"}, names); d != "" {
		t.Error(d)
	}
}

func hex(t *testing.T, b []byte) (n int) {
	t.Helper()
	for _, c := range b {
		i := strings.IndexByte("0123456789abcdef", c)
		if i < 0 {
			t.Fatalf("%q is not hexadecimal", b)
		}
		n = n<<4 | i
	}
	return n
}

func TestCountTests(t *testing.T) {
	got := countTests([]byte(`=== RUN   TestA
--- PASS: TestA (0.00s)
    --- PASS: TestA/sub (0.00s)
=== RUN   TestB
    b_test.go:3: io is not delegated
--- SKIP: TestB (0.00s)
--- FAIL: TestC (0.00s)
FAIL
`))
	want := tally{passed: 1, failed: 1, skipped: []string{"--- SKIP: TestB (0.00s): b_test.go:3: io is not delegated"}, finished: true}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(tally{})); d != "" {
		t.Error(d)
	}
	if countTests([]byte("--- PASS: TestA (0.00s)\npanic: x\n")).finished {
		t.Error("a binary that died counts as finished")
	}
}

func TestStaticIsDemanded(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "x.go")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "x")
	cmd := exec.Command("go", "build", "-o", program, source)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	static, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkStatic(static); err != nil {
		t.Errorf("a static program: %v", err)
	}
	dynamic, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if checkStatic(dynamic) == nil {
		t.Error("/bin/sh, which is dynamic, passed")
	}
}
