// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
)

// kvmTimeout is how long the smallest machine may take. There are hosts whose /dev/kvm
// opens, and whose guests hang. It is QEMU's, with all that QEMU asks KVM for: one made by
// KVM_CREATE_VM and KVM_RUN alone ended as it should on such a host (2026-11-28).
const kvmTimeout = 2 * time.Second

// verdict is what was seen of KVM on this host. What may pass, a full disk say, is none.
type verdict struct {
	mu    sync.Mutex
	seen  bool
	hangs bool
}

const emulates = "--isolation microvm:tcg emulates the processor, for tests"

// kvmUnusable says why there is no KVM, and what mends that.
func (d *Driver) kvmUnusable(ctx context.Context) (why, remedy string) {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return "/dev/kvm may not be opened by this user", "sudo usermod -aG kvm $USER, and log in again"
	case err != nil:
		return "this host has no /dev/kvm", "enable virtualisation in the firmware, or nested virtualisation in the cloud; " + emulates
	}
	f.Close()
	d.kvm.mu.Lock()
	defer d.kvm.mu.Unlock()
	if !d.kvm.seen {
		err := d.tryMachine(context.WithoutCancel(ctx), "kvm", kvmTimeout)
		d.kvm.hangs = errors.Is(err, errHangs)
		if d.kvm.seen = err == nil || d.kvm.hangs; !d.kvm.seen {
			return "the smallest machine does not run on this host's KVM: " + err.Error(), emulates
		}
	}
	if d.kvm.hangs {
		return "the smallest machine hangs on this host's KVM", emulates
	}
	return "", ""
}

// exitPort is where QEMU's isa-debug-exit listens; a byte n written there ends it with
// the code 2n+1.
const (
	exitPort = 0xf4
	exitByte = 0x15
	exitCode = 2*exitByte + 1
)

// What the smallest machine runs: it enters 64-bit mode with pages, which hosts whose
// guests hang do not get through (16-bit code alone ran on one), and writes to exitPort.
const (
	firmwareSize = 64 << 10
	resetVector  = firmwareSize - 16 // where a processor begins
)

var (
	firmwareCode = []byte("" +
		"\xfa\x31\xc0\x8e\xc0" + // cli; xor ax, ax; mov es, ax
		"\xbf\x00\x10\xb9\x00\x18\xfc\xf3\xab" + // three pages of zeros at 0x1000
		"\x26\x66\xc7\x06\x00\x10\x03\x20\x00\x00" + // the first table leads to 0x2000,
		"\x26\x66\xc7\x06\x00\x20\x03\x30\x00\x00" + // that to 0x3000,
		"\x26\x66\xc7\x06\x00\x30\x83\x00\x00\x00" + // which maps 2 MiB at 0
		"\xb8\x00\xf0\x8e\xd8\x66\x0f\x01\x16\x90\x00" + // mov ds, 0xf000; lgdt [0x90]
		"\x0f\x20\xe0\x66\x83\xc8\x20\x0f\x22\xe0" + // cr4 |= PAE
		"\x66\xb8\x00\x10\x00\x00\x0f\x22\xd8" + // cr3 = 0x1000
		"\x66\xb9\x80\x00\x00\xc0\x0f\x32\x66\x0d\x00\x01\x00\x00\x0f\x30" + // EFER |= LME
		"\x0f\x20\xc0\x66\x0d\x01\x00\x00\x80\x0f\x22\xc0" + // cr0 |= PE, PG
		"\x66\xea\x6e\x00\x0f\x00\x08\x00" + // jmp 8:0xf006e, 64-bit code
		"\xbc\xf8\xff\x1f\x00\x50\x5b" + // mov esp, 0x1ffff8; push rax; pop rbx
		"\xb0\x15\xe6\xf4\xf4\xeb\xfd") // mov al, exitByte; out exitPort, al; hlt
	firmwareTable = []byte("" + // at 0x80: the segments, and where they are
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x9a\x20\x00\x0f\x00\x80\x00\x0f\x00")
	firmwareReset = []byte("\xea\x00\x00\x00\xf0") // jmp 0xf000:0
)

func firmware() []byte {
	b := make([]byte, firmwareSize)
	copy(b, firmwareCode)
	copy(b[0x80:], firmwareTable)
	copy(b[resetVector:], firmwareReset)
	return b
}

// tryMachine runs the smallest machine on an accelerator, in the very box that others get.
func (d *Driver) tryMachine(ctx context.Context, accelerator string, limit time.Duration) error {
	program, err := findQEMU()
	if err != nil {
		return errors.New("it is one of QEMU's, whatever runs the others, and there is no QEMU here")
	}
	dir, err := os.MkdirTemp("", "caisson-kvm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "firmware")
	if err := os.WriteFile(file, firmware(), 0o644); err != nil {
		return err
	}
	fd, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	state := filepath.Join(dir, "box")
	if err := os.Mkdir(state, 0o700); err != nil {
		return err
	}
	const inBox = "/run/firmware"
	spec := &sandbox.Spec{
		ID: "sbx_kvm" + rand.Text(), User: sandbox.DefaultUser(), StateDir: state,
		Limits: sandbox.Limits{Memory: 512 << 20, Processes: 64, OpenFiles: 1024}, Mounts: []sandbox.Mount{{Source: f, Name: file, Target: inBox}},
	}
	root, err := image.Host(ctx, image.HostOptions{Cache: filepath.Join(dir, "cache"), User: spec.User, Targets: []image.Target{{Path: inBox}}})
	if err != nil {
		return err
	}
	defer root.Close()
	spec.Root = root.Sandbox()
	b := &box{}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errHangs)
	defer cancel()
	b.res, b.err = d.opts.Box.Run(ctx, spec, &sandbox.Exec{
		Argv: []string{program, "-nodefaults", "-no-user-config", "-display", "none", "-M", "pc", "-accel", accelerator, "-m", "16",
			"-bios", inBox, "-device", "isa-debug-exit,iobase=0xf4,iosize=1"},
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: b, Stderr: b,
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.err == nil && b.res.ExitCode != nil && *b.res.ExitCode == exitCode:
		return nil
	}
	return errors.New(b.why())
}

var errHangs = errors.New("it hangs")
