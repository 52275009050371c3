// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/caisson-run/caisson/sandbox/gvisor/prestart"
)

// What gVisor's gofer and sentry keep in their bounding sets, as bits.
const (
	fileCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID

	goferCaps  = prestart.Kept
	kernelCaps = fileCaps | 1<<unix.CAP_SYS_PTRACE
)

// startWithin makes gVisor start its gofer and sentry through a tiny program in dir that
// narrows their bounding sets, see [prestart.Bounds]. Where that cannot be done
// gVisor starts the binary itself and narrows them later, in all its threads.
// self is this process's executable, from cloneSelf.
func startWithin(dir string, self int) {
	exe, start := filepath.Join(dir, "exe"), filepath.Join(dir, "start")
	program, err := prestart.Bounds(goferCaps, kernelCaps, exe)
	if err != nil {
		return
	}
	// gVisor's gofer and sentry have another uid and cannot walk to the binary by its
	// name; and /proc/self/exe is the tiny program then.
	if err := attach(handedFile{fd: self}, exe); err != nil {
		return
	}
	if err := os.WriteFile(start, program, 0o755); err != nil {
		return
	}
	specutils.ExePath = start
}

// cloneSelf makes a detached mount of this process's executable.
func cloneSelf() (int, error) {
	const self = "/proc/self/exe" // its mount lies in the owner's namespace, so the name is needed
	name, err := os.Readlink(self)
	if err != nil {
		return -1, err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	var want, got unix.Stat_t
	err = errors.Join(unix.Stat(self, &want), unix.Fstat(fd, &got))
	if err == nil && (want.Dev != got.Dev || want.Ino != got.Ino) {
		err = errors.New("the name of the executable leads to another file")
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
