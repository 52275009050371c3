// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// What a dead owner left is taken away with its lock last: a directory without one is
// not swept.
func TestLockGoesLast(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sbx")
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, ownerLock), nil, 0o600))
	for i := range 20 {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0o600), os.MkdirAll(filepath.Join(dir, fmt.Sprint("dir", i), "x"), 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	(&cleanup{msg: &protocol.InitMessage{StateDir: dir}}).run()
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("it is still there: %v", err)
	}
	events := make([]byte, 64<<10)
	n, err := unix.Read(fd, events)
	if err != nil {
		t.Fatal(err)
	}
	told := string(events[:n])
	if at := strings.Index(told, ownerLock); at < 0 || at < strings.LastIndex(told, "file") || at < strings.LastIndex(told, "dir") {
		t.Errorf("the lock went before the rest: %q", told)
	}
}
