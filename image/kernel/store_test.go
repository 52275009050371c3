// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// tree writes files by name.
func tree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cloud is a directory of modules as Debian's cloud kernel has it.
func cloud(t *testing.T) string {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"modules.dep": `kernel/v/virtio.ko:
kernel/v/virtio_ring.ko: kernel/v/virtio.ko
kernel/v/virtio_mmio.ko: kernel/v/virtio_ring.ko kernel/v/virtio.ko
kernel/b/virtio_blk.ko: kernel/v/virtio_ring.ko kernel/v/virtio.ko
kernel/h/virtio-rng.ko: kernel/v/virtio_ring.ko kernel/v/virtio.ko
kernel/l/libcrc32c.ko:
kernel/f/erofs.ko: kernel/l/libcrc32c.ko
kernel/x/unused.ko:
`,
		"modules.builtin":    "kernel/fs/overlayfs/overlay.ko\nkernel/fs/ext4/ext4.ko\nkernel/drivers/char/virtio_console.ko\n",
		"kernel/v/virtio.ko": "virtio", "kernel/v/virtio_ring.ko": "ring", "kernel/v/virtio_mmio.ko": "mmio", "kernel/b/virtio_blk.ko": "blk",
		"kernel/h/virtio-rng.ko": "rng", "kernel/l/libcrc32c.ko": "crc", "kernel/f/erofs.ko": "erofs", "kernel/x/unused.ko": "unused",
	})
	return dir
}

func TestImport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vmlinux")
	image := vmlinux(ours(), elf.ET_EXEC, said)
	if err := os.WriteFile(file, image, 0o644); err != nil {
		t.Fatal(err)
	}
	s := NewStore(filepath.Join(t.TempDir(), "kernels"))
	if k, err := s.Newest(); k != nil || err != nil {
		t.Fatalf("an empty store has %v, %v", k, err)
	}
	k, err := s.Import(ImportOptions{File: file, Modules: cloud(t)})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"virtio", "virtio_ring", "virtio_mmio", "virtio_blk", "virtio_rng", "libcrc32c", "erofs"}; !slices.Equal(k.Modules, want) {
		t.Errorf("modules %q, want %q", k.Modules, want)
	}
	// Which of the drivers it has, built in or not, is told; of an older import what it loads.
	for driver, lacks := range map[string]bool{"virtio_blk": false, "ext4": false, Vsock: true} {
		if k.Lacks(driver) != lacks {
			t.Errorf("it lacks %s: %v, of %q", driver, !lacks, k.Drivers)
		}
	}
	if old := (&Kernel{Modules: k.Modules}); !old.Lacks(Vsock) || old.Lacks("virtio_blk") || (&Kernel{}).Lacks(Vsock) {
		t.Error("an older import")
	}
	if b, err := os.ReadFile(k.Image()); err != nil || !bytes.Equal(b, image) {
		t.Errorf("the image has %d bytes, %v", len(b), err)
	}
	again, err := s.Import(ImportOptions{File: file, Modules: cloud(t)})
	if err != nil || again.Digest != k.Digest {
		t.Errorf("again: %+v, %v", again, err)
	}
	if all, err := s.List(); err != nil || len(all) != 1 || all[0].Version != "6.1.0-48-cloud-amd64" {
		t.Errorf("%+v, %v", all, err)
	}
	if err := s.Remove(k.Digest[:7]); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("seven digits: %v", err)
	}
	if err := s.Remove(k.Digest[:12]); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(s.dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// drivers is a modules.builtin with all that a guest needs.
const drivers = "a/virtio_mmio.ko\na/virtio_blk.ko\na/virtio_console.ko\nf/erofs.ko\nf/ext4.ko\nf/overlay.ko\n"

// The newest import is the last one, also within a second.
func TestImportAgainIsNewest(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(filepath.Join(t.TempDir(), "kernels"))
	tree(t, dir, map[string]string{"built/modules.builtin": drivers})
	for i := range 4 {
		file := filepath.Join(dir, "vmlinux"+string(rune('0'+i%2)))
		tree(t, dir, map[string]string{filepath.Base(file): string(vmlinux(ours(), elf.ET_EXEC, said+file))})
		k, err := s.Import(ImportOptions{File: file, Modules: dir + "/built"})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Newest(); err != nil || got.Digest != k.Digest {
			t.Errorf("import %d: %+v is the newest, %v", i, got, err)
		}
	}
}

func TestImportBuiltIn(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"silent":                string(vmlinux(ours(), elf.ET_EXEC, said)),
		"telling":               string(vmlinux(ours(), elf.ET_EXEC, said+"\x00virtio_mmio\x00virtio_blk\x00virtio_console\x00erofs\x00ext4\x00overlay\x00")),
		"built/modules.builtin": drivers,
	})
	for name, o := range map[string]ImportOptions{"it tells": {File: dir + "/telling"}, "a list tells": {File: dir + "/silent", Modules: dir + "/built"}} {
		if k, err := NewStore(filepath.Join(t.TempDir(), "kernels")).Import(o); err != nil || len(k.Modules) != 0 || k.Lacks("ext4") || !k.Lacks(Vsock) {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
}

// The cloud kernel's drivers are modules, of which each has its name as a string, and the
// kernel none but of what it has built in.
func TestDriversAreKnownByName(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("CAISSON_GUEST_KERNEL"), "boot/vmlinuz-*"))
	if len(files) == 0 {
		t.Skip("no CAISSON_GUEST_KERNEL: make test-vm has one")
	}
	file, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	image, version, err := Extract(file)
	if err != nil {
		t.Fatal(err)
	}
	modules, _, err := gather(filepath.Join(os.Getenv("CAISSON_GUEST_KERNEL"), "lib/modules", version))
	if err != nil {
		t.Fatal(err)
	}
	isModule := map[string]bool{}
	for _, m := range modules {
		isModule[m.name] = true
		if own := []byte("\x00" + m.name + "\x00"); !bytes.Contains(m.content, own) {
			t.Errorf("module %s does not have its name", m.name)
		}
	}
	for _, n := range needs {
		for _, name := range n.names {
			if has := bytes.Contains(image, []byte("\x00"+name+"\x00")); has == isModule[name] {
				t.Errorf("%s is in the kernel: %t, is a module: %t", name, has, isModule[name])
			}
		}
	}
}

func TestImportRefuses(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"vmlinux": string(vmlinux(ours(), elf.ET_EXEC, said)), "text": "hello",
		"mute/modules.dep": "", "mute/modules.builtin": strings.Replace(drivers, "virtio_console", "pcspkr", 1),
		"little":           string(vmlinux(ours(), elf.ET_EXEC, said+"\x00virtio_mmio\x00virtio_blk\x00virtio_console\x00the erofs\x00ext4\x00overlay\x00")),
		"bare/modules.dep": "kernel/f/erofs.ko:\n", "gone/modules.dep": "kernel/v/virtio_mmio.ko:\n", "loop/modules.dep": "virtio_mmio.ko: virtio.ko\nvirtio.ko: virtio_mmio.ko\n",
	})
	for name, tt := range map[string]struct {
		o    ImportOptions
		kind error
		want string
	}{
		"no file":             {ImportOptions{File: dir + "/nothing"}, sandbox.ErrNotFound, "cannot be read"},
		"a directory":         {ImportOptions{File: dir}, sandbox.ErrNotFound, "no regular file"},
		"text":                {ImportOptions{File: dir + "/text"}, sandbox.ErrInvalid, "no Linux kernel"},
		"no modules":          {ImportOptions{File: dir + "/vmlinux", Modules: dir}, sandbox.ErrInvalid, "modules.dep"},
		"without a driver":    {ImportOptions{File: dir + "/vmlinux", Modules: dir + "/bare"}, sandbox.ErrInvalid, "no virtio_mmio and no virtio_pci"},
		"a module is gone":    {ImportOptions{File: dir + "/vmlinux", Modules: dir + "/gone"}, sandbox.ErrInvalid, "virtio_mmio.ko"},
		"no channel":          {ImportOptions{File: dir + "/vmlinux", Modules: dir + "/mute"}, sandbox.ErrInvalid, "no virtio_console and no vmw_vsock_virtio_transport"},
		"no modules at all":   {ImportOptions{File: dir + "/vmlinux"}, sandbox.ErrInvalid, "no modules are in /lib/modules/6.1.0-48-cloud-amd64"},
		"little built in":     {ImportOptions{File: dir + "/little"}, sandbox.ErrInvalid, "no erofs"},
		"modules in a circle": {ImportOptions{File: dir + "/vmlinux", Modules: dir + "/loop"}, sandbox.ErrInvalid, "modules.dep"},
	} {
		s := NewStore(filepath.Join(t.TempDir(), "kernels"))
		if _, err := s.Import(tt.o); !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %v %q", name, err, tt.kind, tt.want)
		}
	}
}

// cpio(1) is the oracle of what is in an initial RAM disk.
func TestInitrd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vmlinux")
	if err := os.WriteFile(file, vmlinux(ours(), elf.ET_EXEC, said), 0o644); err != nil {
		t.Fatal(err)
	}
	k, err := NewStore(filepath.Join(t.TempDir(), "kernels")).Import(ImportOptions{File: file, Modules: cloud(t)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name, err := k.Initrd(strings.NewReader("the agent"), dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := k.Initrd(strings.NewReader("the agent"), dir); err != nil || again != name {
		t.Errorf("the same again is %s, %v", again, err)
	}
	if other, err := k.Initrd(strings.NewReader("another agent"), dir); err != nil || other == name {
		t.Errorf("another is %s, %v", other, err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	first, second, found := bytes.Cut(b, []byte("TRAILER!!!"))
	if !found || !bytes.Contains(first, []byte("the agent")) || !bytes.Contains(second, []byte("modules/06-erofs.ko")) {
		t.Fatalf("%q", b)
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	for _, part := range [][]byte{append(bytes.Clone(first), append([]byte("TRAILER!!!"), make([]byte, 512)...)...), bytes.TrimLeft(second, "\x00")} {
		cmd := exec.Command(cpio, "-tv")
		cmd.Stdin = bytes.NewReader(part)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "init") && !strings.Contains(string(out), "modules/00-virtio.ko") {
			t.Errorf("cpio says %v\n%s", err, out)
		}
	}
}

// What no machine has booted from for a week goes when another one is made.
func TestInitrdsUnused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vmlinux")
	if err := os.WriteFile(file, vmlinux(ours(), elf.ET_EXEC, said), 0o644); err != nil {
		t.Fatal(err)
	}
	k, err := NewStore(filepath.Join(t.TempDir(), "kernels")).Import(ImportOptions{File: file, Modules: cloud(t)})
	if err != nil {
		t.Fatal(err)
	}
	dir, old := t.TempDir(), time.Now().Add(-8*24*time.Hour)
	initrd := func(agent string) string {
		name, err := k.Initrd(strings.NewReader(agent), dir)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	unused, used := initrd("unused"), initrd("used")
	for _, name := range []string{unused, used} {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	initrd("used")
	made := initrd("another")
	for name, want := range map[string]bool{unused: false, used: true, made: true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v, is to be there: %t", name, err, want)
		}
	}
}

func TestNewestKernel(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{
		"boot/vmlinuz-6.9.1": "", "boot/vmlinuz-6.10.0": "", "boot/vmlinuz-6.12.0": "", "boot/vmlinuz-6.1.0-9-cloud-amd64": "", "boot/vmlinuz-6.1.0-48-cloud-amd64": "",
		"modules/6.9.1/modules.dep": "", "modules/6.10.0/modules.dep": "", // 6.12.0 has none here
	})
	if f, err := newestKernel(dir+"/boot", dir+"/modules"); err != nil || filepath.Base(f) != "vmlinuz-6.10.0" {
		t.Errorf("%s, %v", f, err)
	}
	tree(t, dir, map[string]string{"modules/6.1.0-9-cloud-amd64/modules.dep": "", "modules/6.1.0-48-cloud-amd64/modules.dep": ""})
	if f, err := newestKernel(dir+"/boot", dir+"/modules"); err != nil || filepath.Base(f) != "vmlinuz-6.1.0-48-cloud-amd64" {
		t.Errorf("a cloud kernel comes first: %s, %v", f, err)
	}
	if _, err := newestKernel(t.TempDir(), dir); !errors.Is(err, sandbox.ErrNotFound) || sandbox.Hint(err) == "" {
		t.Errorf("none: %v", err)
	}
}
