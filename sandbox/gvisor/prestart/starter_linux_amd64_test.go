// SPDX-License-Identifier: Apache-2.0

package prestart

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

// start runs program as a half of gVisor is started: as root of a new user
// namespace.
func start(t *testing.T, argv0 string, program []byte, privileged bool) (status string, err error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "start")
	if err := os.WriteFile(name, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: name, Args: []string{argv0, "/proc/self/status"}, SysProcAttr: &syscall.SysProcAttr{}}
	if privileged {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	} else if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		for dir := filepath.Dir(name); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := cmd.Output()
	return string(out), err
}

const (
	gofer  = 0x4001f
	kernel = 0x8001f
)

func TestBounds(t *testing.T) {
	program, err := Bounds(gofer, kernel, "/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	for argv0, want := range map[string]string{"runsc-gofer": "000000000004001f", "runsc-sandbox": "000000000008001f"} {
		status, err := start(t, argv0, program, true)
		if err != nil {
			t.Fatalf("%s: %v", argv0, err)
		}
		set := func(name string) string {
			m := regexp.MustCompile(`(?m)^` + name + `:\s*(\w+)$`).FindStringSubmatch(status)
			if m == nil {
				t.Fatalf("no %s in %q", name, status)
			}
			return m[1]
		}
		if got := set("CapBnd"); got != want {
			t.Errorf("%s keeps %s in its bounding set, want %s", argv0, got, want)
		}
		// gVisor needs all the rest for a while, and CAP_SETPCAP, bit 8, would
		// make it go through the bounding set once more.
		for _, name := range []string{"CapPrm", "CapEff", "CapInh"} {
			if got := set(name); !strings.HasSuffix(got, "ffffeff") {
				t.Errorf("%s has the set %s: %s, want all but number 8", argv0, name, got)
			}
		}
	}
}

// A half whose bounding set cannot be narrowed is not started at all.
func TestBoundsFailsClosed(t *testing.T) {
	program, err := Bounds(gofer, kernel, "/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	status, err := start(t, "runsc-gofer", program, false)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 125 || status != "" {
		t.Errorf("without privilege: %v, %q", err, status)
	}
	if program, err = Bounds(gofer, kernel, "/nonexistent"); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, "runsc-gofer", program, true); !errors.As(err, &exit) || exit.ExitCode() != 125 {
		t.Errorf("with nothing to execute: %v", err)
	}
	if _, err := Bounds(gofer, kernel, "/"+strings.Repeat("x", maxPath)); err == nil {
		t.Error("a path that is too long was taken")
	}
}

func TestUmounter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace to unmount in")
	}
	if err := threads.Ending(unmountInNamespace); err != nil {
		t.Fatal(err)
	}
}

func unmountInNamespace() error {
	const dir = "/mnt" // of a namespace of our own
	if err := syscall.Unshare(syscall.CLONE_NEWNS | syscall.CLONE_FS); err != nil {
		return err
	}
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("t", dir, "tmpfs", 0, ""),
		os.WriteFile(dir+"/mark", nil, 0o600)); err != nil {
		return err
	}
	f, err := Umounter(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	// A parent that is gone sends nothing; then nothing is to be done.
	if err := umounter(f, nil, func() error { return nil }); err == nil {
		return errors.New("it ended well without a byte")
	}
	if _, err := os.Stat(dir + "/mark"); err != nil {
		return err
	}
	before := func() error { _, err := os.Stat(dir + "/mark"); return err }
	if err := umounter(f, []byte{0}, before); err != nil {
		return err
	}
	if _, err := os.Stat(dir + "/mark"); !os.IsNotExist(err) {
		return errors.New("it is still mounted")
	}
	// Nothing is mounted any more.
	if err := umounter(f, []byte{0}, before); err == nil {
		return errors.New("it ended well with nothing to unmount")
	}
	return nil
}

// umounter executes f as gVisor's kernel does and sends it data.
func umounter(f *os.File, data []byte, before func() error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	cmd := &exec.Cmd{Path: "/proc/self/fd/9", Args: []string{"x", "umount", "--sync-fd=3", "/proc"}, ExtraFiles: []*os.File{r, nil, nil, nil, nil, nil, f}}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.Close()
	if err := before(); err != nil {
		data = nil
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	w.Close()
	return cmd.Wait()
}

// Only what belongs to the function is copied, and all of it.
func TestCode(t *testing.T) {
	bounds, umount := entries()
	end := []byte{0x0f, 0x05, 0xcd, 0x03} // SYSCALL, INT 3
	for _, at := range []uintptr{bounds, umount} {
		c := code(at)
		if n := bytes.Count(c, end); n != 1 || len(c) > 512 {
			t.Errorf("%d bytes with %d ends: %x", len(c), n, c)
		}
	}
}
