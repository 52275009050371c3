// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// cowFile is a copy-on-write mount of a file.
func cowFile(t *testing.T, name string) sandbox.Mount {
	t.Helper()
	f, err := os.OpenFile(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return sandbox.Mount{Source: f, Name: name, Target: "/tmp/copy", Access: sandbox.CopyOnWrite}
}

// sparse makes a file of zeros that takes no room on the host.
func sparse(t *testing.T, size int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	return name
}

// A copy-on-write file is copied before the start. What cannot be, or has no room, is
// refused by name, and nothing is begun.
func TestCopyRefused(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	big := sparse(t, 20<<20)
	for what, tc := range map[string]struct {
		name  string
		limit func(*sandbox.Limits)
		hint  string
	}{
		"more than the disk": {big, func(l *sandbox.Limits) { l.Disk = 8 << 20 }, "--disk"},
		"a pipe":             {fifo, func(*sandbox.Limits) {}, "ro or rw"},
	} {
		spec := fixture(t)
		tc.limit(&spec.Limits)
		spec.Mounts = append(spec.Mounts, cowFile(t, tc.name))
		res, err := process.New(process.Options{}).Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/"})
		if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), tc.name) || !strings.Contains(sandbox.Hint(err), tc.hint) {
			t.Errorf("%s: %+v, %v (%s)", what, res, err, sandbox.Hint(err))
		}
	}
}
